"""Encodes events to stored payloads, and decodes them.

Stored types are the names of the catalogue, never import paths, so code can move. A type or version
that this release does not know is read as ``Unknown``, and a field that it does not know is
ignored; the stored payload stays as it is, byte for byte.
"""

from __future__ import annotations

from typing import Any

import msgspec

from eventctx.errors import DecodeError, InvalidSetting
from eventctx.log.arguments import shown
from eventctx.log.events import CATALOGUE, Event
from eventctx.log.record import Record
from eventctx.log.upcast import upcast

_encoder = msgspec.json.Encoder()
_json = msgspec.json.Decoder()
_decoders = {name: msgspec.json.Decoder(row.payload) for name, row in CATALOGUE.items()}
_versions = {name: row.version for name, row in CATALOGUE.items()}


class Unknown(msgspec.Struct, frozen=True):
    """An event of a type or version that this release does not know, with its stored payload."""

    type: str
    version: int
    payload: bytes


def encode_event(event: Event) -> tuple[str, int, bytes]:
    """Type name, version and payload of an event, ready for a ``Draft``.

    Raises InvalidSetting that names the field of a value that could not be read back: structs do
    not check their values when they are made, and only a later reader would notice.
    """
    name = str(event.__struct_config__.tag)
    try:
        payload = _encoder.encode(event)
        _decoders[name].decode(payload)
    except KeyError:
        raise InvalidSetting(f"expected an event of the catalogue, found {name!r}") from None
    except UnicodeEncodeError as error:
        text = shown(error.object)
        raise InvalidSetting(f"{name}: expected text that UTF-8 can hold, found {text}") from error
    except (msgspec.ValidationError, OverflowError, TypeError) as error:
        raise InvalidSetting(f"{name}: {error}") from error
    return name, _versions[name], payload


def decode_event(record: Record) -> Event | Unknown:
    """The event of a record in its present form.

    Raises DecodeError (with stream and position) for a payload that its type does not allow, and
    UpcastMissing for an old version without an upcaster.
    """
    current = _versions.get(record.type)
    if current is None or record.version > current:
        return Unknown(record.type, record.version, record.payload)
    try:
        if record.version == current:
            return _decoders[record.type].decode(record.payload)
        old = _json.decode(record.payload)
        row = CATALOGUE[record.type]
        return msgspec.convert(upcast(record.type, record.version, current, old), row.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(
            f"stream {record.stream!r}, position {record.position}: the payload is no "
            f"{record.type} of version {record.version}: {error}"
        ) from error


def decode_known(record: Record) -> Any:
    """The event of a record whose type the caller knows, as a fold needs it.

    Raises DecodeError and UpcastMissing as ``decode_event`` does, and DecodeError also for a later
    version of the type: a fold without that record would give another view than the later release.
    """
    event = decode_event(record)
    if isinstance(event, Unknown):
        raise DecodeError(
            f"stream {record.stream!r}, position {record.position}: a {record.type} of version "
            f"{record.version} was written by a later release: update eventctx"
        )
    return event
