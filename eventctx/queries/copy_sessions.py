"""Copies sessions to another store, verbatim: ids, times, digests, salts, and what was erased.

Three passes, each in constant memory: all sessions are compared, and nothing is written if one is
another session in the target; then what is missing is written; then everything is read back. A copy
that was killed is run again, and goes on where the target ends.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from eventctx.errors import InvalidSetting, LogCorrupted, StreamNotFound
from eventctx.log.integrity import check_bodies
from eventctx.log.record import GENESIS, Draft, Record, follows
from eventctx.log.store import Address, EventStore, Receipt, StreamInfo
from eventctx.queries.copy_writing import (
    CopyProgress,
    CopyResult,
    CopyTally,
    SessionWriter,
    check_meeting,
    digest_at,
    draft_of,
    tombstone,
)


class CopyTarget(Protocol):
    """Where sessions are copied to, with the caches that must forget what is destroyed there."""

    @property
    def store(self) -> EventStore:
        """The store to write to."""
        ...

    async def erase_again(self, stream: str, bodies: Mapping[Address, bytes]) -> None:
        """Destroy contents that were erased in the source."""
        ...

    async def delete_again(self, stream: str, last: Draft, expected: int) -> None:
        """Destroy a session that was deleted in the source."""
        ...

    def copied(self, receipt: Receipt) -> None:
        """A session was copied, and read back up to here."""
        ...


async def copy_sessions(
    source: EventStore,
    target: CopyTarget,
    sessions: Sequence[str] | None = None,
    progress: CopyProgress | None = None,
) -> CopyResult:
    """Copy sessions, or all and the marks of deleted ones, in the order in which they were made.

    A fork is copied as a fork, so its parent has to be in the target, or among ``sessions``. Of a
    session that grows meanwhile, the copy ends where it stood at some moment of the copy. Damage of
    one session ends the copy of this one alone; the result names it.

    Raises SessionDiffers, InvalidSetting (a fork without its parent, one store as both) and
    StreamNotFound, each before anything is written; and the errors of both stores.
    """
    if source.cache_path is not None and source.cache_path == target.store.cache_path:
        raise InvalidSetting("copy: expected two stores, found one that was named twice")
    named = None if sessions is None else await _named(source, sessions)
    copy = _Copy(source, target, named, progress or _no_progress)
    await copy.compare()
    await copy.write()
    await copy.check()
    return copy.tally.result()


class _Copy:
    def __init__(
        self,
        source: EventStore,
        target: CopyTarget,
        named: dict[str, StreamInfo] | None,
        progress: CopyProgress,
    ) -> None:
        self.tally = CopyTally()
        self._source = source
        self._target = target
        self._store = target.store
        self._named = named
        self._progress = progress
        self._writer = SessionWriter(source, target.store, self.tally)
        self._deletions: dict[str, StreamInfo] = {}
        self._records = 0

    async def compare(self) -> None:
        """Look at every session in both stores. Raises SessionDiffers, InvalidSetting."""
        compared = 0
        empty = not [one async for one in self._store.streams(limit=1)]
        async for info in self._each():
            compared += 1
            self._progress("comparing", compared, 0)
            if info.head < 0:
                text = "all records of the session were removed"
                self.tally.problem(info.stream, 0, text, damage=True)
                continue
            try:
                there = None
                if not empty:
                    there = await check_meeting(self._source, info, self._store)
            except LogCorrupted as error:
                self._damaged(info, error)
                continue
            if there is None and info.parent is not None:
                await self._check_parent(info)
            if info.deleted and there is not None and not there.deleted:
                self._deletions[info.stream] = info
            known = _own_start(info) - 1 if there is None else there.head
            self._records += 0 if info.deleted else max(0, info.head - known)
        self.tally.sessions = compared

    async def write(self) -> None:
        """Write what the target does not hold."""
        for info in reversed(self._deletions.values()):  # forks first
            await self._delete(info)
        async for info in self._each():
            if self.tally.failed(info.stream):
                continue
            try:
                if info.deleted:
                    await self._mark_deleted(info)
                else:
                    await self._write(info)
            except LogCorrupted as error:
                self._damaged(info, error)
            self._progress("copying", self.tally.records, max(self._records, self.tally.records))
        await self._writer.settle()

    async def check(self) -> None:
        """Read everything back, and repeat erasures."""
        done = 0
        async for info in self._each():
            done += 1
            if not info.deleted and not self.tally.failed(info.stream):
                try:
                    await self._check(info)
                except LogCorrupted as error:
                    self._damaged(info, error)
            self._progress("checking", done, self.tally.sessions)

    # -- one session -----------------------------------------------------------------------------

    async def _write(self, info: StreamInfo) -> None:
        there = await self._store.head(info.stream)
        if there is None and info.parent is not None and not await self._parent_reaches(info):
            text = f"its parent {info.parent!r} could not be copied as far as it was forked"
            self.tally.problem(info.stream, -1, text)
            return
        sent = 0
        try:
            sent = await self._writer.write(info, there)
        finally:
            if there is None:
                self.tally.copied += 1
            elif sent:
                self.tally.continued += 1
            else:
                self.tally.unchanged += 1

    async def _parent_reaches(self, info: StreamInfo) -> bool:
        """Whether a fork can be made; its parent is copied further if it grew meanwhile."""
        assert info.parent is not None and info.forked_at is not None  # noqa: S101 - as called
        await self._writer.settle()
        for _ in range(2):
            there = await self._store.head(info.parent)
            if there is not None and not there.deleted and there.head >= info.forked_at:
                return True
            parent = await self._source.head(info.parent)
            if there is None or parent is None or self.tally.failed(info.parent):
                return False
            await self._writer.write(parent, there)
            await self._writer.settle()
        return False

    async def _check(self, info: StreamInfo) -> None:
        there = await self._store.head(info.stream)
        if there is None:  # a session that was made meanwhile
            await self._write(info)
            await self._writer.settle()
            there = await self._store.head(info.stream)
        if there is None or there.deleted:
            self.tally.problem(info.stream, -1, "it was removed from the target meanwhile")
            return
        last = min(info.head, there.head)
        checked = await check_copy(self._source, info, self._store, last)
        if checked.erased:
            await self._erase(info, checked.erased)
        self._target.copied(Receipt(info.stream, last, checked.digest))
        self.tally.checked += 1

    async def _erase(self, info: StreamInfo, bodies: Mapping[Address, bytes]) -> None:
        """Erase in the target what was erased in the source since it was copied."""
        # The record that says so came in the same step, so it can be read by now.
        now = await self._source.head(info.stream)
        there = await self._store.head(info.stream)
        if now is not None and there is not None and not now.deleted:
            await self._writer.write(now, there)
            await self._writer.settle()
        await self._target.erase_again(info.stream, bodies)
        self.tally.erased += len(bodies)

    async def _delete(self, info: StreamInfo) -> None:
        """Delete in the target what was deleted in the source since it was copied."""
        grave = await tombstone(self._source, info)
        await self._target.delete_again(
            info.stream, draft_of(grave.record), grave.record.position - 1
        )
        self.tally.deleted += 1

    async def _mark_deleted(self, info: StreamInfo) -> None:
        if await self._store.head(info.stream) is not None:
            self.tally.unchanged += info.stream not in self._deletions
            return
        set_tombstone = getattr(self._store, "set_tombstone", None)
        if set_tombstone is None:
            self.tally.left_out += 1
            return
        grave = await tombstone(self._source, info)
        await set_tombstone(info, draft_of(grave.record), grave.previous, grave.event.records)
        self.tally.deleted += 1
        self.tally.records += 1

    # -- parts -----------------------------------------------------------------------------------

    async def _each(self) -> AsyncIterator[StreamInfo]:
        """The sessions to copy as they are now, parents before their forks."""
        if self._named is None:
            async for info in self._source.streams():
                yield info
            return
        for name in self._named:
            found = await self._source.head(name)
            if found is not None:
                yield found

    async def _check_parent(self, info: StreamInfo) -> None:
        """Raise InvalidSetting for a fork whose parent is not in the target, nor to be copied."""
        assert info.parent is not None and info.forked_at is not None  # noqa: S101 - as called
        if self._named is None or info.parent in self._named:
            return
        there = await self._store.head(info.parent)
        if there is not None and not there.deleted and there.head >= info.forked_at:
            wanted = await digest_at(self._source, info, info.forked_at)
            if await digest_at(self._store, there, info.forked_at) == wanted:
                return
        names = [*await _ancestors(self._source, info), info.stream]
        raise InvalidSetting(
            f"copy: {info.stream!r} was forked from {info.parent!r} at position {info.forked_at}, "
            f"which the target does not hold; copy them together: {shlex.join(names)}"
        )

    def _damaged(self, info: StreamInfo, error: LogCorrupted) -> None:
        self.tally.problem(info.stream, error.position, error.problem, damage=True)


async def _named(source: EventStore, sessions: Sequence[str]) -> dict[str, StreamInfo]:
    """The named sessions, parents before their forks. Raises StreamNotFound."""
    found: dict[str, tuple[int, StreamInfo]] = {}
    for name in sessions:
        info = await source.head(name)
        if info is None:
            raise StreamNotFound(name)
        found[name] = (len(await _ancestors(source, info)), info)
    ordered = sorted(found.values(), key=lambda pair: pair[0])
    return {info.stream: info for _, info in ordered}


async def _ancestors(source: EventStore, info: StreamInfo) -> list[str]:
    """The sessions that one was forked from, the first of them first."""
    names: list[str] = []
    parent = info.parent
    while parent is not None and parent not in names:
        names.append(parent)
        above = await source.head(parent)
        parent = None if above is None else above.parent
    return names[::-1]


def _own_start(info: StreamInfo) -> int:
    return 0 if info.forked_at is None else info.forked_at + 1


def _no_progress(*_: object) -> None:
    pass


class CheckedCopy(NamedTuple):
    """The digest of the last record that both hold, and contents that only the target still has.

    ``erased`` maps their addresses to the facts that the source has left of them.
    """

    digest: bytes
    erased: dict[Address, bytes]


async def check_copy(
    source: EventStore, info: StreamInfo, target: EventStore, last: int
) -> CheckedCopy:
    """Compare a session's own records up to position ``last``. Raises LogCorrupted."""
    forked_at = -1 if info.forked_at is None else info.forked_at
    previous = GENESIS if forked_at < 0 else await digest_at(source, info, forked_at)
    first = forked_at + 1
    erased: dict[Address, bytes] = {}
    wanted: Any = source.read(info.stream, start=first, stop=last, bodies=False)
    found: Any = target.read(info.stream, start=first, stop=last)
    position = forked_at
    async with aclosing(wanted), aclosing(found):
        async for record, there in _pairs(info.stream, wanted, found):
            position += 1
            _check_equal(record, there, position, previous)
            previous = record.digest
            for index, (body, copy) in enumerate(zip(record.bodies, there.bodies, strict=True)):
                if body.erased and not copy.erased:
                    erased[Address(position, index)] = body.facts
    if position != last:
        raise LogCorrupted(info.stream, position + 1, "the record is missing in both stores")
    return CheckedCopy(previous, erased)


async def _pairs(
    stream: str, wanted: AsyncIterator[Record], found: AsyncIterator[Record]
) -> AsyncIterator[tuple[Record, Record]]:
    async for record in wanted:
        there = await anext(found, None)
        if there is None:
            raise LogCorrupted(stream, record.position, "the record is missing in the target")
        yield record, there


def _check_equal(record: Record, there: Record, position: int, previous: bytes) -> None:
    if (record.position, there.position) != (position, position):
        missing = "the source" if record.position != position else "the target"
        raise LogCorrupted(record.stream, position, f"the record is missing in {missing}")
    if there.digest != record.digest or not follows(previous, there):
        raise LogCorrupted(record.stream, position, "the target holds another record")
    bodies = ((Address(position, index), body) for index, body in enumerate(there.bodies))
    check_bodies(record.stream, bodies)
