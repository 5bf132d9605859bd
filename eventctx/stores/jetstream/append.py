"""One append: its messages after the end of the session, and whether it is stored already.

An append that was sent and not answered may be stored, now or a moment later. It was sent with one
certain end of the session, so its records follow that end directly or are nowhere: the places are
kept (``Try``), and the event ids found there decide. While nothing follows that end, nothing is
decided: a leader that was deposed or is cut off may lag.

The bodies of an append that is too long for an atomic batch are written before its records
(``EarlyBodies``). They mean nothing until a unit names their places, so the append stays all or
nothing. If it fails in the end they are destroyed; those of a process that died meanwhile are
destroyed with the next erasure in their session, or its deletion.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from eventctx.errors import EventctxError, InvalidSetting
from eventctx.log.record import Draft, Record, place
from eventctx.log.store import NO_STREAM, STREAM_EXISTS, Appended, Expected, Last, Receipt
from eventctx.stores.ack import Ack
from eventctx.stores.jetstream.connection import (
    DOUBTS,
    ApiError,
    Outgoing,
    ServerLink,
    Tries,
    outgoing,
    send,
)
from eventctx.stores.jetstream.layout import (
    BATCH_MESSAGES,
    UNIT_BYTES,
    UNIT_RECORDS,
    Names,
    Registered,
    SessionOrigin,
    StoredBody,
    Unit,
    WireMessage,
    encode,
    split_body,
    split_unit,
    to_stored,
)
from eventctx.stores.rules import accepts, chain, conflict, retried_at, same_ids

BATCH_BYTES: Final = 16 * 2**20
"""About the most bytes of one atomic batch: the servers keep it in memory until it ends."""

_ROOM: Final = 8
"""Messages of a batch that are left for entries of registry, family and ledger."""


class PackedUnit(NamedTuple):
    """A unit, and which of the messages is its last."""

    unit: Unit
    offset: int


class Packed(NamedTuple):
    """The messages of an append, in order, and the units in them."""

    messages: list[Outgoing]
    units: list[PackedUnit]
    size: int

    @property
    def fits(self) -> bool:
        """Whether one atomic batch takes it."""
        return len(self.messages) <= BATCH_MESSAGES - _ROOM and self.size <= BATCH_BYTES


class UnitAppend(NamedTuple):
    """Records at their place in a session: drafts, their digests, and where the first goes."""

    session: str
    first: int
    drafts: Sequence[Draft]
    digests: Sequence[bytes]
    origin: SessionOrigin | None = None
    deleted: bool = False


BodyKey = tuple[int, int]
"""The draft's number in the append, and the body's number in the draft."""


def pack(names: Names, appending: UnitAppend, most: int) -> Packed:
    """The messages of an append, where a message takes ``most`` bytes."""
    subject = names.of_session("b", appending.session)
    messages: list[Outgoing] = []
    units: list[PackedUnit] = []
    for start, stop in _groups(appending.drafts):
        bodies: list[Outgoing] = []
        kept: list[list[StoredBody]] = []
        for draft in appending.drafts[start:stop]:
            row: list[StoredBody] = []
            for body in draft.bodies:
                parts = split_body(body, most)
                bodies += [outgoing(subject, part.headers, part.payload) for part in parts]
                row.append(StoredBody(body.digest, len(parts)))
            kept.append(row)
        unit = _unit(appending, start, stop, kept)
        messages += _of_unit(names, appending.session, unit, most)
        units.append(PackedUnit(unit, len(messages) - 1))
        messages += bodies
    return Packed(messages, units, sum(message.size for message in messages))


def pack_without_bodies(
    names: Names, appending: UnitAppend, most: int, places: Mapping[BodyKey, StoredBody]
) -> Packed:
    """The messages of an append whose bodies were written before, at ``places``.

    Raises InvalidSetting for one that no batch can take.
    """
    messages: list[Outgoing] = []
    units: list[PackedUnit] = []
    for start, stop in _groups(appending.drafts):
        kept = [
            [places[number, index] for index in range(len(appending.drafts[number].bodies))]
            for number in range(start, stop)
        ]
        unit = _unit(appending, start, stop, kept)
        messages += _of_unit(names, appending.session, unit, most)
        units.append(PackedUnit(unit, len(messages) - 1))
    packed = Packed(messages, units, sum(message.size for message in messages))
    if len(messages) > BATCH_MESSAGES - _ROOM:
        raise InvalidSetting(
            f"append to {appending.session!r}: expected records that fit into "
            f"{BATCH_MESSAGES - _ROOM} messages, found {len(messages)}; append them in parts"
        )
    return packed


def bodies_before(
    names: Names, appending: UnitAppend, most: int
) -> Iterator[tuple[BodyKey, StoredBody, list[Outgoing]]]:
    """The bodies of an append as messages that are written before its unit."""
    subject = names.of_session("p", appending.session)
    for number, draft in enumerate(appending.drafts):
        for index, body in enumerate(draft.bodies):
            parts = split_body(body, most)
            messages = [outgoing(subject, part.headers, part.payload) for part in parts]
            yield (number, index), StoredBody(body.digest, len(parts)), messages


def registry_entry(
    names: Names, session: str, origin: SessionOrigin, *, deleted: bool = False, records: int = 0
) -> Outgoing:
    """The entry of the registry for a session that is created or deleted."""
    entry = Registered(session, origin.created, origin.parent, origin.forked_at, deleted, records)
    return outgoing(names.of_shard("n", names.shard(session)), {}, encode(entry))


def records_of(
    names: Names, appending: UnitAppend, units: Sequence[PackedUnit], first_sequence: int
) -> tuple[Record, ...]:
    """The records of an append whose messages lie from ``first_sequence`` on."""
    shard = names.shard(appending.session)
    records: list[Record] = []
    for unit, offset in units:
        begins = names.global_position(shard, first_sequence + offset, 0)
        for ordinal in range(len(unit.records)):
            number = len(records)
            records.append(
                place(
                    appending.drafts[number],
                    appending.session,
                    appending.first + number,
                    begins + ordinal,
                    appending.digests[number],
                )
            )
    return tuple(records)


def _groups(drafts: Sequence[Draft]) -> Iterator[tuple[int, int]]:
    """The drafts of each unit, as half-open ranges."""
    if len(drafts) == 1:
        yield 0, 1
        return
    start, size = 0, 0
    for number, draft in enumerate(drafts):
        own = 256 + len(draft.payload) + 40 * len(draft.bodies)
        if number > start and (number - start >= UNIT_RECORDS or size + own > UNIT_BYTES):
            yield start, number
            start, size = number, 0
        size += own
    yield start, len(drafts)


def _unit(
    appending: UnitAppend, start: int, stop: int, bodies: Sequence[Sequence[StoredBody]]
) -> Unit:
    rows = [
        to_stored(draft, digest, kept)
        for draft, digest, kept in zip(
            appending.drafts[start:stop], appending.digests[start:stop], bodies, strict=True
        )
    ]
    origin = appending.origin if start == 0 else None
    return Unit(appending.first + start, tuple(rows), origin, appending.deleted)


def _of_unit(names: Names, session: str, unit: Unit, most: int) -> list[Outgoing]:
    subject = names.of_session("r", session)
    parts: list[WireMessage] = split_unit(encode(unit), most)
    return [outgoing(subject, part.headers, part.payload) for part in parts]


class Tip(NamedTuple):
    """The end of a session: its last record, and the sequence of its last unit."""

    position: int
    digest: bytes | None
    event: bytes | None
    sequence: int


NOTHING: Final = Tip(-1, None, None, 0)
"""The end of a session that does not exist."""


class AppendLog(Protocol):
    """The reads of a writer; all are answered by the leader of the session's stream."""

    async def tip(self, session: str) -> Tip:
        """The end of a session."""
        ...

    async def records(self, session: str, first: int, last: int) -> list[Record]:
        """The records at these positions, as many as there are, with bodies."""
        ...

    async def current(self, session: str) -> bool:
        """Whether the leader of the session's stream hears of a majority: no other leads."""
        ...


class Try(NamedTuple):
    """A place where an append may be stored: its batch was to follow the position ``end``.

    Its own first record is at ``first``; those between belong to appends of the same batch.
    """

    end: int
    first: int


class Undecided(Exception):
    """The leader's messages do not tell whether an append is stored, or may be stored yet."""


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
    """The places of its bodies, if they were written before."""

    @property
    def starts(self) -> bool:
        """Whether it expects that there is no such session yet."""
        return self.expected is NO_STREAM or self.expected == -1


def maybe_made_before(append: QueuedAppend, tip: Tip) -> bool:
    """Whether only the stored records tell what to do with this append."""
    if append.tried or not accepts(append.expected, tip.position, tip.event):
        return True
    return bool(append.drafts) and tip.event == append.drafts[-1].id


def appending(append: QueuedAppend, tip: Tip) -> UnitAppend:
    """The records of an append after ``tip``. Raises InvalidSetting for unfit drafts."""
    digests = chain(append.session, tip.digest, tip.position + 1, append.drafts)
    origin = SessionOrigin(append.drafts[0].time) if tip.position < 0 else None
    return UnitAppend(append.session, tip.position + 1, append.drafts, digests, origin)


def tip_after(appending: UnitAppend, sequence: int) -> Tip:
    """The end of the session after an append whose last unit ends at ``sequence``."""
    last = appending.first + len(appending.drafts) - 1
    return Tip(last, appending.digests[-1], appending.drafts[-1].id, sequence)


def may_come_yet(append: QueuedAppend, tip: Tip) -> bool:
    """Whether a try of this append may still be stored, for all that ``tip`` tells.

    Only another record after the same end rules it out: the servers accept one message with that
    expectation.
    """
    return any(tip.position <= one.end for one in append.tried)


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
            return append_result(append.session, tuple(found))
    if accepted:
        return None
    doubt = f"its leader has it end at {tip.position}, and may be behind the others"
    if may_come_yet(append, tip):
        raise Undecided(doubt)
    # The caller may have sent it before, or have seen an end that this leader does not know.
    if ends_before(append.expected, tip) and not await log.current(append.session):
        raise Undecided(doubt)
    raise conflict(append.session, append.expected, tip.position)


def append_result(session: str, records: tuple[Record, ...]) -> Appended:
    return Appended(records, Receipt(session, records[-1].position, records[-1].digest))


_log = logging.getLogger("eventctx.stores")

_SEND_BYTES: Final = BATCH_BYTES // 2


class Destroys(Protocol):
    """Destroys messages of a session."""

    async def waste(self, session: str, sequences: list[int]) -> None:
        """Destroy messages that no unit names."""
        ...


class EarlyBodies:
    """Writes bodies before their records; for the store's loop."""

    def __init__(self, link: ServerLink, destroys: Destroys) -> None:
        self._link = link
        self._destroys = destroys

    async def write(self, place: UnitAppend) -> dict[BodyKey, StoredBody]:
        """Store all bodies of an append, and return their places."""
        written: dict[BodyKey, StoredBody] = {}
        waiting: list[tuple[BodyKey, StoredBody, int]] = []
        messages: list[Outgoing] = []
        size = 0
        most = self._link.client.max_payload

        async def flush() -> None:
            first = await self._send(messages, place.session)
            for key, body, offset in waiting:
                written[key] = replace(body, sequence=first + offset)
            waiting.clear()
            messages.clear()

        for key, body, parts in bodies_before(self._link.names, place, most):
            own = sum(part.size for part in parts)
            if messages and (
                len(messages) + len(parts) > BATCH_MESSAGES or size + own > _SEND_BYTES
            ):
                await flush()
                size = 0
            size += own
            waiting.append((key, body, len(messages)))
            messages += parts
        if messages:
            await flush()
        return written

    async def _send(self, messages: list[Outgoing], session: str) -> int:
        tries = Tries(self._link, f"append to {session!r}")
        while True:
            try:
                return await send(self._link, messages)
            except DOUBTS as error:
                await tries.after(error)
            except ApiError as error:
                if not error.passing:
                    raise self._link.translate(error, f"append to {session!r}") from error
                await tries.after(error)

    def waste(self, session: str, written: Mapping[BodyKey, StoredBody]) -> None:
        """Destroy the bodies of an append that failed, in the background."""
        sequences = [
            body.sequence + number
            for body in written.values()
            if body.sequence is not None
            for number in range(body.messages)
        ]
        self._link.keep(self._wasted(session, sequences))

    async def _wasted(self, session: str, sequences: list[int]) -> None:
        try:
            await self._destroys.waste(session, sequences)
        except EventctxError as error:
            _log.warning("%s: %d messages of a failed append were left: %s",
                         self._link.address.place, len(sequences), error)  # fmt: skip
