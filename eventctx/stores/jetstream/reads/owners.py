"""Whose records a session's are: its own, and by reference those of the sessions it is a fork of.

And which bodies of an owner were erased. What a session was made of never changes, so it is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import LogCorrupted, StreamNotFound
from eventctx.stores.jetstream.reads.asking import RetryingReads
from eventctx.stores.jetstream.reads.units import Erased, Gathered, Incomplete
from eventctx.stores.jetstream.reads.verifying import SessionEnds, SessionHead
from eventctx.stores.jetstream.wire.collecting import StoredMessage
from eventctx.stores.jetstream.wire.layout import SessionOrigin, decode_erased

_MOST_KEPT: Final = 10_000
_FIRST_MESSAGES: Final = 8
_TRIES: Final = 4


class Owned(NamedTuple):
    """Positions ``first`` to ``last`` of a session are records of the session ``owner``."""

    owner: str
    first: int
    last: int


class Beginning(NamedTuple):
    """The origin of a session, and the position of the first record of its own."""

    origin: SessionOrigin
    first: int


class Owners:
    """The origins of sessions, and their erasures, with a bounded memory of both."""

    def __init__(self, asking: RetryingReads, heads: SessionEnds) -> None:
        self._asking = asking
        self._heads = heads
        self._names = asking.names
        self._beginnings: OrderedDict[str, Beginning] = OrderedDict()
        self._erased: OrderedDict[str, tuple[int, dict[tuple[int, int], bytes]]] = OrderedDict()

    async def beginning(self, session: str, head: SessionHead) -> Beginning:
        """The origin of a session whose end is ``head``. Raises LogCorrupted."""
        if head.unit.origin is not None:
            return Beginning(head.unit.origin, head.unit.first)
        found = self._beginnings.get(session)
        if found is None:
            found = await self._first(session)
            self._beginnings[session] = found
            while len(self._beginnings) > _MOST_KEPT:
                self._beginnings.popitem(last=False)
        return found

    async def _first(self, session: str) -> Beginning:
        shard, subject = self._names.shard(session), self._names.of_session("r", session)
        problem = "its first record is missing"
        for number in range(_TRIES):
            gathered = Gathered()
            try:
                if number < _TRIES - 1:
                    page = await self._asking.page(shard, subject, 1, messages=_FIRST_MESSAGES)
                    gathered.add(page.messages)
                else:
                    sequence = 1
                    while not gathered.units and (
                        one := await self._asking.next(shard, subject, sequence)
                    ):
                        gathered.add([one])
                        sequence = one.sequence + 1
            except Incomplete as damage:
                problem = damage.problem
                continue
            unit = gathered.units[0].unit if gathered.units else None
            if unit is not None and unit.origin is not None:
                return Beginning(unit.origin, unit.first)
        raise LogCorrupted(session, 0, problem)

    async def lineage(self, session: str, head: SessionHead) -> list[Owned]:
        """The ranges of records that make up a session up to ``head``, oldest first.

        Raises LogCorrupted.
        """
        found: list[Owned] = []
        owner, last, met = session, head.position, {session}
        beginning = await self.beginning(session, head)
        while True:
            if beginning.first <= last:
                found.append(Owned(owner, beginning.first, last))
            parent, forked_at = beginning.origin.parent, beginning.origin.forked_at
            if parent is None or forked_at is None:
                return found[::-1]
            if parent in met:
                raise LogCorrupted(session, -1, "its forks have no beginning")
            met.add(parent)
            owner, last = parent, min(last, forked_at)
            known = self._beginnings.get(parent)
            if known is None:
                parents = await self._heads.head(parent)
                if parents is None or parents.deleted:
                    problem = f"the session {parent!r} that it was forked from is missing"
                    raise LogCorrupted(session, -1, problem)
                known = await self.beginning(parent, parents)
            beginning = known

    async def erased(self, owner: str) -> Erased:
        """The bodies that were erased of the records that ``owner`` owns. Raises LogCorrupted."""
        shard, subject = self._names.shard(owner), self._names.of_session("e", owner)
        last = await self._asking.last(shard, subject)
        if last is None:
            return {}
        upto, bodies = self._erased.get(owner, (0, {}))
        if upto < last.sequence:
            bodies = dict(bodies)
            for message in await self._between(shard, subject, upto + 1, last):
                try:
                    for one in decode_erased(message.data):
                        bodies[one.position, one.index] = one.facts
                except msgspec.MsgspecError as error:
                    problem = f"erasure {message.sequence} is damaged: {error}"
                    raise LogCorrupted(owner, -1, problem) from error
            self._erased[owner] = (last.sequence, bodies)
            while len(self._erased) > _MOST_KEPT:
                self._erased.popitem(last=False)
        return bodies

    async def _between(
        self, shard: int, subject: str, first: int, last: StoredMessage
    ) -> list[StoredMessage]:
        """The messages of a subject from the sequence ``first`` to the message ``last``."""
        if first == last.sequence:
            return [last]
        found: list[StoredMessage] = []
        while not found or found[-1].sequence < last.sequence:
            page = await self._asking.page(
                shard, subject, found[-1].sequence + 1 if found else first
            )
            if not page.messages:
                # A replica that lags, or is damaged: the leader has them, one by one.
                step = await self._asking.next(
                    shard, subject, found[-1].sequence + 1 if found else first
                )
                page = page._replace(messages=[last if step is None else step])
            found += page.messages
        return found

    def forget(self, session: str) -> None:
        """Drop what is kept of a session that was deleted."""
        self._beginnings.pop(session, None)
        self._erased.pop(session, None)


async def existing(heads: SessionEnds, session: str) -> SessionHead:
    """The end of a session that must be there. Raises StreamNotFound."""
    head = await heads.head(session)
    if head is None:
        raise StreamNotFound(session)
    return head
