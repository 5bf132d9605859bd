"""The EventStore protocol: the operations and promises that the engine needs of a store.

A store keeps streams, one for each session, and appends to their ends. A stream may be a fork:
positions up to the fork point are read from its parent, by reference.

Invariant: an acknowledged record is never lost, changed or moved, and a stream's records have the
positions from 0 without gaps. The exceptions are on purpose: ``erase`` destroys bodies and keeps
their digests, ``delete`` leaves one last record. Snapshots and checkpoints are caches and may be
lost.

Every store passes the one contract suite, ``eventctx.testing.StoreContract``. Its promises:

- An append is all or nothing. It names the end of the stream that it expects, so that no writer
  overwrites or overtakes another.
- ``append`` returns an awaitable at once and keeps the order of the calls: two appends to one
  stream are applied in the order in which ``append`` was called, whether or not the first was
  awaited. The awaitable resolves when the records are durable. It may be awaited from any event
  loop, never, once or several times.
- Retrying an append whose outcome is unknown is safe: if the stream already holds records with the
  same ids at the place where they would go, the call succeeds and returns those.
- A failed append stores nothing. Errors are those of ``eventctx.errors``, never a driver's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from eventctx.log.record import Body, Draft, Record


class ExpectedVersion(Enum):
    """Expected versions of a stream besides an exact last position (an int)."""

    NO_STREAM = "no stream"
    STREAM_EXISTS = "stream exists"
    ANY = "any"


NO_STREAM = ExpectedVersion.NO_STREAM
STREAM_EXISTS = ExpectedVersion.STREAM_EXISTS
ANY = ExpectedVersion.ANY


class Last(NamedTuple):
    """Expects one record at the stream's end, by its position and event id.

    Stricter than a position alone. While a writer appends without waiting, another writer may fill
    exactly the positions that the first one counted on; the id shows whose record is there.
    """

    position: int
    id: bytes


_NOTHING: Final[Mapping[str, Draft]] = MappingProxyType({})

Expected = int | Last | ExpectedVersion


class Address(NamedTuple):
    """The place of a body in a stream: the record's position and the index among its bodies."""

    position: int
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


class Receipt(msgspec.Struct, frozen=True, eq=False):
    """Proof of an append: the stream's last position and the digest there.

    Kept outside the store, it lets ``verify`` notice a tail that was cut or rewritten.
    """

    stream: str
    position: int
    digest: bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Receipt):
            return NotImplemented
        return (self.stream, self.position, self.digest) == (
            other.stream,
            other.position,
            other.digest,
        )

    def __hash__(self) -> int:
        return hash((self.stream, self.position, self.digest))

    def __str__(self) -> str:
        return f"{self.stream}@{self.position}:{self.digest.hex()}"

    @staticmethod
    def parse(text: str) -> Receipt:
        """Read ``STREAM@POSITION:HEX``. Raises ValueError for another form."""
        stream, _, rest = text.rpartition("@")
        position, _, digest = rest.partition(":")
        if not stream or len(digest) != 64:
            raise ValueError(f"expected a receipt SESSION@POSITION:HEX64, found {text!r}")
        return Receipt(stream, int(position), bytes.fromhex(digest))


class MessageReceipt(Receipt, frozen=True, eq=False):
    """The receipt of a message: also its ``number``, by which it is pinned, asked for, restored.

    It equals the plain receipt of its record: the number is no part of the proof.
    """

    number: int


class Appended(NamedTuple):
    """The result of an append: the records in their places, and the receipt for them."""

    records: tuple[Record, ...]
    receipt: Receipt


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream's last position (-1: no record) and digest, its creation, and its origin.

    ``created`` is in UTC nanoseconds. A fork has its ``parent`` and, in ``forked_at``, the last
    position that it shares with it. Of a ``deleted`` one a single record is left, its last.
    """

    stream: str
    head: int
    digest: bytes
    created: int
    parent: str | None = None
    forked_at: int | None = None
    deleted: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """A projection's encoded state at a position, valid only if ``digest`` is the record's there.

    ``version`` is the projection's; a state of another version is ignored.
    """

    position: int
    digest: bytes
    version: int
    data: bytes


class StoreDescription(msgspec.Struct, frozen=True):
    """A store as its operator needs to know it; without passwords and keys.

    ``kind`` is one of ``memory``, ``sqlite``, ``postgresql``, ``jetstream``; ``place`` names it to
    a person, ``server`` the program and version that keeps it. ``survives`` is the worst that an
    acknowledged append outlives: ``process`` is the end of it, but no power cut. ``facts`` are the
    settings on which that rests, as they were found.
    """

    kind: str
    place: str
    server: str
    survives: Literal["nothing", "process", "power cut", "loss of a machine"]
    facts: Mapping[str, str] = {}


class Inspection(NamedTuple):
    """The findings of a store about itself as a whole.

    ``findings`` are damage outside of any one stream, and foreign additions. ``missing`` is the
    number of records that were once stored and are in no stream now, without those of deleted
    sessions.
    """

    findings: tuple[str, ...]
    missing: int


class Erasure(NamedTuple):
    """The outcome of an erasure: bodies that were not erased before, and the records appended."""

    bodies: int
    records: tuple[Record, ...]


class EventStore(Protocol):
    """Streams of records, their bodies, snapshots and checkpoints."""

    @property
    def cache_path(self) -> Path | None:
        """Path prefix of the local cache files; None: there are none.

        No two stores share one. For a store in a file it is the file's path, for a store on a
        server a path in the user's cache folder, made from an id in the store.
        """
        ...

    @property
    def read_only(self) -> bool:
        """Whether every write raises StoreReadOnly."""
        ...

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        """Append ``drafts`` (at least one) in one step, and create the stream if it does not exist.

        On await, raises WrongExpectedVersion, StoreFull, StoreReadOnly, StoreUnavailable, and
        InvalidSetting for drafts that no store can take.
        """
        ...

    def read(
        self,
        stream: str,
        *,
        start: int = 0,
        stop: int | None = None,
        backward: bool = False,
        limit: int | None = None,
        bodies: bool = True,
    ) -> AsyncIterator[Record]:
        """Records with ``start <= position <= stop``, ascending, or descending if ``backward``.

        ``bodies=False`` leaves out the bodies' data and salts (digests and facts are there) and
        is much cheaper. Raises StreamNotFound.
        """
        ...

    def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        """Records of all streams with a global position above ``after``, ascending.

        A fork's inherited records appear once, under their own stream.
        """
        ...

    async def head(self, stream: str) -> StreamInfo | None:
        """The stream's last position, digest and origin; None if it does not exist."""
        ...

    def streams(
        self, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[StreamInfo]:
        """Streams in order of creation; those made after the stream ``after``, at most ``limit``.

        Reads page by page, so that any number of streams takes the same memory. Deleted ones are
        among them. Raises StreamNotFound for an ``after`` that does not exist.
        """
        ...

    async def forks(self, stream: str) -> list[str]:
        """The streams that were forked from ``stream`` itself, in order of creation.

        Without those that were deleted. Raises StreamNotFound.
        """
        ...

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        """The bodies at ``addresses``, in that order, with data (unless erased).

        Raises StreamNotFound, and LogCorrupted for an address that holds no body.
        """
        ...

    async def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        """Create ``new`` as ``stream`` up to ``at`` (inclusive) by reference, plus ``first``.

        ``first`` gets position ``at + 1`` and chains to the parent's digest at ``at``. Raises
        StreamNotFound, StreamExists, InvalidSetting for an ``at`` outside the stream.
        """
        ...

    def subscribe(
        self, *, stream: str | None = None, after: int = -1, bodies: bool = False
    ) -> AsyncIterator[Record]:
        """Every record after ``after``, first those stored, then live ones, without a gap.

        ``after`` is a position of ``stream``, or a global position when ``stream`` is None. Ends
        only when the store is closed. Also delivers the records that other processes append.
        """
        ...

    async def erase(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        records: Mapping[str, Draft] = _NOTHING,
    ) -> Erasure:
        """Destroy data and salt of the bodies at these addresses of streams, in one step.

        Each body gets the facts given with its address: those of ``facts.outline_facts`` (role,
        call ids) let older views keep their order. ``records`` are appended to their streams in the
        same step: a ``context:erased`` for every stream that reaches the bodies. Digests stay, so
        chains still verify. Forks share bodies by reference, so a fork loses them too; snapshots
        that may hold erased contents go. Raises StreamNotFound, and LogCorrupted for an address
        that holds no body.
        """
        ...

    async def delete(self, stream: str, last: Draft, expected: int) -> Record:
        """Destroy all records, bodies and snapshots of a stream, and leave ``last`` in their place.

        ``last`` follows the record at ``expected``, the stream's last position, in the chain. A
        fork loses what is its own, and is no fork any more. Raises StreamNotFound,
        WrongExpectedVersion, and InvalidSetting for a stream that others were forked from.
        """
        ...

    async def scrubbed(self) -> bool:
        """Whether the bytes of all that was erased or deleted are gone from every file.

        A reader in another process may keep an older state of a file alive. The rest is then done
        when that reader ends, or when the store is opened again.
        """
        ...

    async def inspect(self) -> Inspection:
        """Look for damage outside of the streams. It reads the whole store."""
        ...

    async def describe(self) -> StoreDescription:
        """Describe the store, and the faults that an acknowledged append survives."""
        ...

    async def load_snapshot(self, stream: str, name: str) -> Snapshot | None:
        """The newest snapshot of projection ``name``; None if there is none."""
        ...

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """Store a snapshot in place of the last of that name. Does not wait; it may be lost."""
        ...

    async def load_checkpoint(self, name: str) -> int | None:
        """A subscription's last handled position; None if it never saved one."""
        ...

    async def save_checkpoint(self, name: str, position: int) -> None:
        """Store a subscription's last handled position durably."""
        ...

    async def close(self) -> None:
        """Write what is queued, then release all resources. A second call does nothing."""
        ...


class PeekingStore(Protocol):
    """An optional ability of a store: the end of a stream at once, without a wait.

    An answer from memory is given only after this question, so it is asked very often. A store
    that cannot answer it within some microseconds does not offer it, and is asked for the ``head``.
    """

    def peek(self, stream: str) -> int | None:
        """The position of the stream's last record that is durable, whoever appended it.

        -1 for a stream that does not exist. None where the store cannot tell at once: it is busy or
        closed, and its ``head`` waits or says so. Callable from any thread.
        """
        ...


class TombstoneStore(Protocol):
    """An optional ability of a store: to take over the mark of a session deleted elsewhere.

    ``append`` cannot do it: of the records before the mark only the digest is left.
    """

    async def set_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> Record:
        """Create the deleted stream ``info``, of which only ``last`` is left, at ``info.head``.

        ``last`` chains to the digest ``previous``; ``records`` were destroyed where the session
        was, and ``inspect`` counts them as missing here, too. A retry returns the stored record.
        Raises StreamExists.
        """
        ...


async def last_position(store: EventStore, stream: str) -> int:
    """The position of the stream's last record, -1 without one, the cheapest way there is."""
    # ``isinstance`` of a Protocol takes longer than the peek.
    peek: Callable[[str], int | None] | None = getattr(store, "peek", None)
    found = None if peek is None else peek(stream)
    if found is None:
        info = await store.head(stream)
        return -1 if info is None else info.head
    return found
