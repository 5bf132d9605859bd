"""The stored form of ``import:raw`` records: compressed bytes, since they are read rarely."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from eventctx.errors import DecodeError
from eventctx.log.codec import decode_event
from eventctx.log.events import Encoding, ImportRaw
from eventctx.log.record import Record

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
