"""The stored form of ``import:raw`` records: compressed bytes, since they are read rarely."""

from __future__ import annotations

import zlib
from typing import Final

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
