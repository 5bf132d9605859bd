"""One append: what it becomes behind the end of its session, and whether it was made before.

An append that was sent and not answered may be stored, now or a moment later. It was sent behind
one certain end of the session, so it lies directly there or nowhere: its places are kept, and the
event ids found there decide. While nothing is found behind that end, nothing is decided: a leader
that was deposed, or is cut off, may be behind the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from eventctx.log.record import Draft, Record
from eventctx.log.store import NO_STREAM, STREAM_EXISTS, Appended, Expected, Last, Receipt
from eventctx.stores.ack import Ack
from eventctx.stores.jetstream.packing import BodyKey, UnitAppend
from eventctx.stores.jetstream.wire.layout import SessionOrigin, StoredBody
from eventctx.stores.rules import accepts, chain, conflict, retried_at, same_ids


class Tip(NamedTuple):
    """The end of a session: its last record, and the sequence of its last unit."""

    position: int
    digest: bytes | None
    event: bytes | None
    sequence: int


NOTHING: Final = Tip(-1, None, None, 0)
"""The end of a session that does not exist."""


class AppendLog(Protocol):
    """The reads that a writer needs. All see what the leader of the session's stream has."""

    async def tip(self, session: str) -> Tip:
        """The end of a session."""
        ...

    async def records(self, session: str, first: int, last: int) -> list[Record]:
        """The records at these positions, as many as there are, with bodies."""
        ...

    async def current(self, session: str) -> bool:
        """Whether the leader of the session's stream hears of the others, so that none else is."""
        ...


class Try(NamedTuple):
    """A place where an append may be stored: it was sent with what lies ``behind`` this end.

    Its own first record is at ``first``; those between are of appends of the same batch.
    """

    behind: int
    first: int


class Undecided(Exception):
    """What the leader has does not tell whether an append is stored, or may be."""


@dataclass(slots=True, eq=False)
class QueuedAppend:
    """An append that waits or is under way."""

    session: str
    drafts: Sequence[Draft]
    expected: Expected
    size: int
    ack: Ack[Appended] = field(default_factory=Ack)
    since: float = field(default_factory=time.monotonic)
    tried: list[Try] = field(default_factory=list)
    written: dict[BodyKey, StoredBody] | None = None
    """Where its bodies lie already, if it is too long for one batch."""

    @property
    def starts(self) -> bool:
        """Whether it expects that there is no such session yet."""
        return self.expected is NO_STREAM or self.expected == -1


def maybe_made_before(append: QueuedAppend, tip: Tip) -> bool:
    """Whether it takes a look at the stored records to know what to do."""
    if append.tried or not accepts(append.expected, tip.position, tip.event):
        return True
    return bool(append.drafts) and tip.event == append.drafts[-1].id


def appending(append: QueuedAppend, tip: Tip) -> UnitAppend:
    """The records of an append behind ``tip``. Raises InvalidSetting for drafts that cannot be."""
    digests = chain(append.session, tip.digest, tip.position + 1, append.drafts)
    origin = SessionOrigin(append.drafts[0].time) if tip.position < 0 else None
    return UnitAppend(append.session, tip.position + 1, append.drafts, digests, origin)


def behind(appending: UnitAppend, sequence: int) -> Tip:
    """The end of the session behind an append whose last unit ends at ``sequence``."""
    last = appending.first + len(appending.drafts) - 1
    return Tip(last, appending.digests[-1], appending.drafts[-1].id, sequence)


def may_come_yet(append: QueuedAppend, tip: Tip) -> bool:
    """Whether a try of this append may still be stored, for all that ``tip`` tells.

    Only another record behind the same end keeps it out.
    """
    return any(tip.position <= one.behind for one in append.tried)


def ends_before(expected: Expected, tip: Tip) -> bool:
    """Whether a session with this end is shorter than the writer expects it to be."""
    if isinstance(expected, Last):
        return tip.position < expected.position
    if isinstance(expected, int):
        return tip.position < expected
    return expected is STREAM_EXISTS and tip.position < 0


async def made_before(log: AppendLog, append: QueuedAppend, tip: Tip) -> Appended | None:
    """The result of an earlier try of this append, if there is one.

    Raises WrongExpectedVersion if there is none, and the session ends elsewhere than expected; and
    Undecided if that is not known.
    """
    count = len(append.drafts)
    tried = [one.first for one in append.tried]
    places = [first for first in tried if first + count - 1 <= tip.position]
    accepted = accepts(append.expected, tip.position, tip.event)
    if not accepted or (append.drafts and tip.event == append.drafts[-1].id):
        first = retried_at(append.expected, tip.position, count)
        if first is not None and first not in places:
            places.append(first)
    for first in places if count else ():
        found = await log.records(append.session, first, first + count - 1)
        if same_ids([record.id for record in found], append.drafts):
            return appended(append.session, tuple(found))
    if accepted:
        return None
    behind = f"its leader has it end at {tip.position}, and may be behind the others"
    if may_come_yet(append, tip):
        raise Undecided(behind)
    # The caller may have sent it before, or have seen the end that the leader does not know.
    if ends_before(append.expected, tip) and not await log.current(append.session):
        raise Undecided(behind)
    raise conflict(append.session, append.expected, tip.position)


def appended(session: str, records: tuple[Record, ...]) -> Appended:
    """The result of an append."""
    return Appended(records, Receipt(session, records[-1].position, records[-1].digest))
