"""One append: what it becomes behind the end of its session, and whether it was made before.

An append that was sent and not answered may be stored, now or a moment later. It was sent behind
one certain end of the session, so it lies directly there or nowhere: its places are kept, and the
event ids found there decide.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from eventctx.log.record import Draft, Record
from eventctx.log.store import NO_STREAM, Appended, Expected, Receipt
from eventctx.stores.ack import Ack
from eventctx.stores.jetstream.layout import Origin, StoredBody
from eventctx.stores.jetstream.packing import Appending, BodyKey
from eventctx.stores.rules import accepts, chain, conflict, retried_at, same_ids


class Tip(NamedTuple):
    """The end of a session: its last record, and the sequence of its last unit."""

    position: int
    digest: bytes | None
    event: bytes | None
    sequence: int


NOTHING: Final = Tip(-1, None, None, 0)
"""The end of a session that does not exist."""


class Log(Protocol):
    """The reads that a writer needs. All see what the leader of the session's stream has."""

    async def tip(self, session: str) -> Tip:
        """The end of a session."""
        ...

    async def records(self, session: str, first: int, last: int) -> list[Record]:
        """The records at these positions, as many as there are, with bodies."""
        ...


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append that waits or is under way."""

    session: str
    drafts: Sequence[Draft]
    expected: Expected
    size: int
    ack: Ack[Appended] = field(default_factory=Ack)
    since: float = field(default_factory=time.monotonic)
    tried: list[int] = field(default_factory=list)
    written: dict[BodyKey, StoredBody] | None = None
    """Where its bodies lie already, if it is too long for one batch."""

    @property
    def starts(self) -> bool:
        """Whether it expects that there is no such session yet."""
        return self.expected is NO_STREAM or self.expected == -1


def maybe_made_before(append: PendingAppend, tip: Tip) -> bool:
    """Whether it takes a look at the stored records to know what to do."""
    if append.tried or not accepts(append.expected, tip.position, tip.event):
        return True
    return bool(append.drafts) and tip.event == append.drafts[-1].id


def appending(append: PendingAppend, tip: Tip) -> Appending:
    """The records of an append behind ``tip``. Raises InvalidSetting for drafts that cannot be."""
    digests = chain(append.session, tip.digest, tip.position + 1, append.drafts)
    origin = Origin(append.drafts[0].time) if tip.position < 0 else None
    return Appending(append.session, tip.position + 1, append.drafts, digests, origin)


def behind(appending: Appending, sequence: int) -> Tip:
    """The end of the session behind an append whose last unit ends at ``sequence``."""
    last = appending.first + len(appending.drafts) - 1
    return Tip(last, appending.digests[-1], appending.drafts[-1].id, sequence)


async def made_before(log: Log, append: PendingAppend, tip: Tip) -> Appended | None:
    """The result of an earlier try of this append, if there is one.

    Raises WrongExpectedVersion if there is none, and the session ends elsewhere than expected.
    """
    count = len(append.drafts)
    places = [first for first in append.tried if first + count - 1 <= tip.position]
    accepted = accepts(append.expected, tip.position, tip.event)
    if not accepted or (append.drafts and tip.event == append.drafts[-1].id):
        first = retried_at(append.expected, tip.position, count)
        if first is not None and first not in places:
            places.append(first)
    for first in places if count else ():
        found = await log.records(append.session, first, first + count - 1)
        if same_ids([record.id for record in found], append.drafts):
            return appended(append.session, tuple(found))
    if not accepted:
        raise conflict(append.session, append.expected, tip.position)
    return None


def appended(session: str, records: tuple[Record, ...]) -> Appended:
    """The result of an append."""
    return Appended(records, Receipt(session, records[-1].position, records[-1].digest))
