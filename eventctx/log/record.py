"""The record: an event in its envelope, with its bodies, as a link of the session's chain.

A writer makes a ``Draft``; the store gives it a position and a digest, and it is a ``Record`` for
ever. A ``Body`` has a salted digest of its own, and only that goes into the record's digest, so
that a body can be erased and the chain still verifies.

Invariant: the digest of a record covers the digest of the record before it, and so the whole
session until there. An edited, inserted, dropped or moved record breaks the chain. A cut or
rewritten end shows only against a digest that was kept elsewhere (``store.Receipt``).

Digests are SHA-256 over length-prefixed fields, so that no two different records share an encoding:
four bytes of length in network order, then the field; the length ``0xFFFFFFFF`` means an absent
field. Session id and global position are left out, so that a session can be moved to another store
or name without breaking its chain.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from time import perf_counter_ns
from typing import Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import LAST, check_callable, shown

GENESIS: Final = bytes(32)
"""The digest before a stream's first record."""

SALT_BYTES: Final = 16

_ABSENT: Final = b"\xff\xff\xff\xff"
_FIXED: Final = struct.Struct(">I32sIqI16sIqII")
_LENGTH: Final = struct.Struct(">I")


class CheckedClock:
    """A caller's clock, whose times are checked: UTC nanoseconds.

    ``stopwatch`` is the clock's own, else the process's. Raises InvalidSetting for a clock that is
    no function, and when it gives no time.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        check_callable("clock", clock)
        self._clock = clock
        self.stopwatch: Callable[[], int] = getattr(clock, "stopwatch", perf_counter_ns)

    def __call__(self) -> int:
        """The time now."""
        time = self._clock()
        if type(time) is not int or not 0 <= time <= LAST:
            raise InvalidSetting(
                f"clock: expected UTC nanoseconds, an int from 0 to {LAST}, found {shown(time)}"
            )
        return time


class Body(msgspec.Struct, frozen=True, gc=False):
    """The stored bytes of one message or other content.

    ``facts`` are the facts read from it (MessagePack, see ``messages.Facts``), a cache that can
    be rebuilt and that no digest covers. ``data`` and ``salt`` are None if the body was read
    without them, or was ``erased``; the digest stays.
    """

    digest: bytes
    facts: bytes
    data: bytes | None = None
    salt: bytes | None = None
    erased: bool = False


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A record without a position, as a writer hands it to a store.

    ``id`` is 16 bytes, unique in the stream: a store recognises a retry by its ids. ``time`` is
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


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event in its envelope.

    ``stream`` is the session under which it was read; ``position`` its place there, from 0 without
    gaps; ``global_position`` its place in the store, rising, possibly with gaps.
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
    """SHA-256 of salt and data. Without the salt, a short erased text could be guessed again."""
    return sha256(salt + data).digest()


def make_body(data: bytes, facts: bytes, salt: Callable[[int], bytes]) -> Body:
    """The body of ``data`` with salt and digest; ``salt(n)`` returns n random bytes."""
    salted = salt(SALT_BYTES)
    return Body(body_digest(salted, data), facts, data, salted)


@lru_cache(maxsize=1024)
def _kind(kind: str) -> bytes:
    encoded = kind.encode()
    return _LENGTH.pack(len(encoded)) + encoded


@lru_cache(maxsize=1024)
def _ids(turn_id: str | None, span_id: str | None, parent_span_id: str | None) -> bytes:
    return _optional(turn_id) + _optional(span_id) + _optional(parent_span_id)


def _optional(text: str | None) -> bytes:
    if text is None:
        return _ABSENT
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def chain_digest(previous: bytes, position: int, draft: Draft | Record) -> bytes:
    """The digest of a record at ``position``; ``previous`` is the digest of the record before it.

    Fields in order: previous digest (32 bytes), position (8), event id (16), time (8), version
    (4), type, turn id, span id, parent span id, iteration (8), payload, body digests joined.
    """
    bodies = draft.bodies
    body_digests = (
        bodies[0].digest if len(bodies) == 1 else b"".join([body.digest for body in bodies])
    )
    iteration = draft.iteration
    payload = draft.payload
    return sha256(
        b"".join(
            (
                _FIXED.pack(
                    32, previous, 8, position, 16, draft.id, 8, draft.time, 4, draft.version
                ),
                _kind(draft.type),
                _ids(draft.turn_id, draft.span_id, draft.parent_span_id),
                _ABSENT if iteration is None else b"\0\0\0\x08" + iteration.to_bytes(8, "big"),
                _LENGTH.pack(len(payload)),
                payload,
                _LENGTH.pack(len(body_digests)),
                body_digests,
            )
        )
    ).digest()


def follows(previous: bytes, record: Record) -> bool:
    """Whether a record's digest follows from its fields and the digest of the record before."""
    if len(record.id) != 16:  # packing would cut it, or fill it up
        return False
    try:
        return chain_digest(previous, record.position, record) == record.digest
    except (struct.error, OverflowError, UnicodeError):
        return False  # a value that no writer could have packed


def place(draft: Draft, stream: str, position: int, global_position: int, digest: bytes) -> Record:
    """The record of a draft at its place."""
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
