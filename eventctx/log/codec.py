"""The codec: events to stored payloads and back.

Stored types are the names of the catalogue, never import paths, so code can move. Invariant: a
stored payload is never rewritten. A type or version that this release does not know is read as
``Unknown``, a field that it does not know is ignored, and an old version is read through upcasters.
When the payload of an event type changes, its version in the catalogue goes up by one, and
``UPCASTERS`` gets a function from the old payload to the next version. Golden files of every
version stay in ``tests/golden/``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import DecodeError, InvalidSetting, UpcastMissing
from eventctx.log.arguments import shown
from eventctx.log.events import CATALOGUE, Encoding, Event, ImportRaw, MessageAdded, MessagesSet
from eventctx.log.record import Record

# -- upcasters -----------------------------------------------------------------------------------

Payload = dict[str, Any]
Upcaster = Callable[[Payload], Payload]

UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}
"""``(type name, from version)`` to the function that takes a payload to the next version."""


def upcast(
    name: str,
    version: int,
    target: int,
    payload: Payload,
    steps: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
) -> Payload:
    """Take ``payload`` from ``version`` to ``target``. Raises UpcastMissing for a missing step."""
    while version < target:
        step = steps.get((name, version))
        if step is None:
            raise UpcastMissing(
                f"{name} is stored in version {version}, this release reads version {target} "
                f"and knows no step from {version} to {version + 1}: update eventctx"
            )
        payload = step(payload)
        version += 1
    return payload


# -- events --------------------------------------------------------------------------------------

_encoder = msgspec.json.Encoder()
_json = msgspec.json.Decoder()
_versions = {name: row.version for name, row in CATALOGUE.items()}


class _Decoders(dict[str, msgspec.json.Decoder[Event]]):
    """The decoders by type name, each made at its first use: a process reads few types."""

    def __missing__(self, name: str) -> msgspec.json.Decoder[Event]:
        decoder = self[name] = msgspec.json.Decoder(CATALOGUE[name].payload)
        return decoder


_decoders = _Decoders()


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


_last_known: tuple[bytes, str, int, Any] = (b"", "", 0, None)
"""The payload, type, version and event of the last ``decode_known``; no text is in a payload.

A timeline is eight folds over one log, so a record's event is asked for up to seven times in a row.
"""


def decode_known(record: Record) -> Any:
    """The event of a record whose type the caller knows, as a fold needs it.

    Raises DecodeError and UpcastMissing as ``decode_event`` does, and DecodeError also for a later
    version of the type: a fold without that record would give another view than the later release.
    """
    global _last_known
    payload, name, version, known = _last_known
    if payload is record.payload and name == record.type and version == record.version:
        return known
    event = decode_event(record)
    if isinstance(event, Unknown):
        raise DecodeError(
            f"stream {record.stream!r}, position {record.position}: a {record.type} of version "
            f"{record.version} was written by a later release: update eventctx"
        )
    _last_known = (record.payload, record.type, record.version, event)
    return event


# -- who wrote a body ----------------------------------------------------------------------------


class HarnessBodies(NamedTuple):
    """The indexes of a record's bodies that a harness wrote; ``observations`` are among them.

    The facts of a body are read from its message and from this, so they can be rebuilt from the
    record.
    """

    harness: frozenset[int] = frozenset()
    observations: frozenset[int] = frozenset()


_NONE: Final = HarnessBodies()
_FIRST: Final = frozenset((0,))


class _Payload(msgspec.Struct):
    origin: str | None = None
    observation: bool = False
    harness: tuple[int, ...] = ()
    observations: tuple[int, ...] = ()


_decode: Final = msgspec.json.Decoder(_Payload).decode


def harness_bodies(event: Event) -> HarnessBodies:
    """The bodies of ``event`` that a harness wrote."""
    if isinstance(event, MessageAdded):
        return _of_one(event.origin is not None, event.observation)
    if isinstance(event, MessagesSet):
        return HarnessBodies(frozenset(event.harness), frozenset(event.observations))
    return _NONE


def stored_harness_bodies(kind: str, payload: bytes) -> HarnessBodies:
    """The same for an event as it is stored; none for a payload that cannot be read."""
    if b'"harness"' not in payload:
        return _NONE  # nearly all; an observation is a harness's, too
    try:
        found = _decode(payload)
    except msgspec.DecodeError:
        return _NONE
    if kind == "context:message_added":
        return _of_one(found.origin is not None, found.observation)
    if kind == "context:messages_set":
        return HarnessBodies(frozenset(found.harness), frozenset(found.observations))
    return _NONE


def _of_one(harness: bool, observation: bool) -> HarnessBodies:
    if not harness:
        return _NONE
    return HarnessBodies(_FIRST, _FIRST if observation else frozenset())


# -- parts of imported files: compressed bytes, since they are read rarely ------------------------

LEVEL: Final = 3
"""A Claude Code transcript shrinks to 15 %, at about 180 MB/s; at level 6 to 13 %, half as fast."""

SMALLEST: Final = 512
"""Below this many bytes compression saves nothing worth having."""


def pack(data: bytes) -> tuple[bytes, Encoding]:
    """The bytes to store for ``data``, and how they are encoded."""
    if len(data) < SMALLEST:
        return data, "plain"
    return zlib.compress(data, LEVEL), "zlib"


def raw_of(record: Record) -> bytes | None:
    """The parts in an ``import:raw`` record, joined by line ends; None if erased."""
    event = decode_event(record)
    data = record.bodies[0].data
    if data is None or not isinstance(event, ImportRaw) or event.encoding == "plain":
        return data
    return zlib.decompress(data)


class Unpacked(NamedTuple):
    """The beginning of the parts in a record, their size as text, and that of the container.

    ``length`` and ``stored`` are in bytes; ``length`` is None where ``data`` is cut before its end.
    """

    data: bytes
    length: int | None
    stored: int


def unpacked(record: Record, most: int) -> Unpacked | None:
    """At most ``most`` bytes of the parts in an ``import:raw`` record; None if it was erased.

    Only so much is ever unpacked, whatever a container claims to hold. Raises DecodeError for one
    that cannot be unpacked.
    """
    event = decode_event(record)
    stored = record.bodies[0].data if record.bodies else None
    if stored is None:
        return None
    if not isinstance(event, ImportRaw) or event.encoding == "plain":
        return Unpacked(stored[:most], len(stored), len(stored))
    opened = zlib.decompressobj()
    try:
        data = opened.decompress(stored, most + 1)
        whole = len(data) <= most and opened.eof
    except zlib.error as error:
        raise DecodeError(
            f"stream {record.stream!r}, position {record.position}: expected parts of a file "
            f"packed with zlib, found {len(stored)} bytes that are not ({error})"
        ) from error
    if not whole and len(data) <= most:
        raise DecodeError(
            f"stream {record.stream!r}, position {record.position}: expected parts of a file "
            f"packed with zlib, found a container that ends too early ({len(stored)} bytes)"
        )
    return Unpacked(data[:most], len(data) if whole else None, len(stored))
