"""The envelope: an event in its stream, its bodies, and the chain of digests over them.

Digests (SHA-256) are taken over length-prefixed fields, so that no two different records share an
encoding: four bytes of length in network order, then the field; the length ``0xFFFFFFFF`` says
that a field is absent. The session id and the global position stay outside, so that a session
can be moved to another store or name without breaking its chain.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Final

import msgspec

GENESIS: Final = bytes(32)
"""The digest before a stream's first record."""

SALT_BYTES: Final = 16

_ABSENT: Final = b"\xff\xff\xff\xff"
_FIXED: Final = struct.Struct(">I32sIqI16sIqII")
_LENGTH: Final = struct.Struct(">I")


class Body(msgspec.Struct, frozen=True):
    """The stored bytes of one message or other content.

    ``facts`` is what the reader saw in it (MessagePack, see ``messages.Facts``), a cache that can
    be rebuilt and that no digest covers. ``data`` and ``salt`` are None when the body was not
    asked for, or was ``erased``; the digest stays.
    """

    digest: bytes
    facts: bytes
    data: bytes | None = None
    salt: bytes | None = None
    erased: bool = False


class Draft(msgspec.Struct, frozen=True):
    """A record before it has a place: what a writer hands to a store.

    ``id`` is 16 bytes, unique in the stream: a retry with the same ids is recognised. ``time`` is
    UTC nanoseconds. ``span_id`` and ``parent_span_id`` are 16 lowercase hex digits.
    """

    id: bytes
    type: str
    version: int
    time: int
    payload: bytes
    bodies: tuple[Body, ...] = ()
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None


class Record(msgspec.Struct, frozen=True):
    """An event in its envelope.

    ``stream`` is the session under which it was read; ``position`` its place there, from 0 without
    gaps; ``global_position`` its place in the store, rising but not without gaps.
    """

    stream: str
    position: int
    global_position: int
    id: bytes
    type: str
    version: int
    time: int
    payload: bytes
    bodies: tuple[Body, ...]
    turn_id: str | None
    span_id: str | None
    parent_span_id: str | None
    iteration: int | None
    digest: bytes

    @property
    def session_id(self) -> str:
        """The session's id, which is the stream's."""
        return self.stream


def body_digest(salt: bytes, data: bytes) -> bytes:
    """SHA-256 of salt and data. The salt keeps a short erased text from being guessed back."""
    return hashlib.sha256(salt + data).digest()


def make_body(data: bytes, facts: bytes, salt: Callable[[int], bytes]) -> Body:
    """Salt and digest ``data``; ``salt(n)`` returns n random bytes (``os.urandom``)."""
    salted = salt(SALT_BYTES)
    return Body(body_digest(salted, data), facts, data, salted)


def _optional(text: str | None) -> bytes:
    if text is None:
        return _ABSENT
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def chain_digest(previous: bytes, position: int, draft: Draft | Record) -> bytes:
    """The digest of a record at ``position`` behind one whose digest is ``previous``.

    Fields in order: previous digest (32 bytes), position (8), event id (16), time (8), version
    (4), type, turn id, span id, parent span id, iteration (8), payload, body digests joined.
    """
    body_digests = b"".join([body.digest for body in draft.bodies])
    kind = draft.type.encode()
    iteration = draft.iteration
    return hashlib.sha256(
        b"".join(
            (
                _FIXED.pack(
                    32, previous, 8, position, 16, draft.id, 8, draft.time, 4, draft.version
                ),
                _LENGTH.pack(len(kind)),
                kind,
                _optional(draft.turn_id),
                _optional(draft.span_id),
                _optional(draft.parent_span_id),
                _ABSENT if iteration is None else b"\0\0\0\x08" + iteration.to_bytes(8, "big"),
                _LENGTH.pack(len(draft.payload)),
                draft.payload,
                _LENGTH.pack(len(body_digests)),
                body_digests,
            )
        )
    ).digest()


def place(draft: Draft, stream: str, position: int, global_position: int, digest: bytes) -> Record:
    """Give a draft its place."""
    return Record(
        stream,
        position,
        global_position,
        draft.id,
        draft.type,
        draft.version,
        draft.time,
        draft.payload,
        draft.bodies,
        draft.turn_id,
        draft.span_id,
        draft.parent_span_id,
        draft.iteration,
        digest,
    )
