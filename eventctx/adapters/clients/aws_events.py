"""Streams of Amazon Bedrock: events in binary frames, ``application/vnd.amazon.eventstream``.

A frame is its length, the length of its headers and the checksum of both, each of four bytes; then
the headers, the payload, and a checksum of all. A payload is JSON whose ``bytes`` are the event.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from typing import Any, Final

import msgspec

from eventctx.messages.encoding import decode_json

_PRELUDE: Final = struct.Struct(">III")
_CHECKSUM: Final = 4


def events_of_aws(content: bytes) -> list[dict[str, Any]]:
    """The events of a body in such frames, as far as it came; none where it is another body."""
    found = []
    at = 0
    while len(content) - at >= _PRELUDE.size:
        length, headers, checksum = _PRELUDE.unpack_from(content, at)
        begin, end = at + _PRELUDE.size + headers, at + length - _CHECKSUM
        broken = zlib.crc32(content[at : at + 8]) != checksum or end < begin
        if broken or end > len(content):
            break
        event = _event(content[begin:end])
        if event is not None:
            found.append(event)
        at += length
    return found


def _event(payload: bytes) -> dict[str, Any] | None:
    try:
        frame = decode_json(payload)
        event = decode_json(b64decode(frame["bytes"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None
    return event if isinstance(event, dict) else None
