"""The difference of requests of two sessions: two forks, or one task run twice.

A message of one session is the same as a message of the other where both have it from the same
record of a shared past, or where both hold the same bytes. Messages with equal bytes are paired in
order, each with one of the other session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple

import msgspec

from eventctx.log.integrity import sound_bodies
from eventctx.log.naming import RequestName, message_name
from eventctx.log.store import EventStore
from eventctx.projections.explain.why import Reason, ViewHistory
from eventctx.projections.presence import Presence
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.queries.encoding import fill
from eventctx.queries.explain_answers import (
    Message,
    ReasonAnswer,
    Side,
    SideAnswer,
    reason_answer,
    side_answer,
)
from eventctx.queries.explaining import Seen, side_of, states_at
from eventctx.queries.requests import address_of, sound_messages

Which = Literal["first", "second"]
"""One of the two requests, in the order in which they were named."""

_BATCH: Final = 256
"""Bodies in memory at a time."""


class SidedMessage(msgspec.Struct, frozen=True):
    """A message that the two requests do not show alike.

    ``session`` is the request that shows it, or shows more of it, and ``number`` its number there;
    ``other`` is its number in the other session, None where that never had it. ``presence`` is how
    the other request has it, and ``ruling`` why; ``message`` is None where it was erased.
    """

    session: Which
    number: int
    other: int | None
    presence: Presence
    ruling: Reason | None
    role: str
    message: Message | None


class SidedInsertion(msgspec.Struct, frozen=True):
    """A text, such as a summary, that only one of the two requests inserts."""

    session: Which
    kind: str
    stands_for: tuple[tuple[int, int], ...]
    message: Message | None


class SessionsDiff(msgspec.Struct, frozen=True):
    """The differences of a request of one session and a request of another.

    ``both`` counts the messages that both show alike.
    """

    first_session: str
    second_session: str
    first: Side
    second: Side
    both: int
    differences: tuple[SidedMessage, ...]
    insertions: tuple[SidedInsertion, ...]


class _Side(NamedTuple):
    stream: str
    seen: Seen
    view: ViewHistory


async def difference_of_sessions(
    store: EventStore, first: tuple[str, RequestName], second: tuple[str, RequestName]
) -> SessionsDiff:
    """Compare a request of one session, by stream and name, with a request of another.

    Raises StreamNotFound, InvalidSetting, and LogCorrupted for a body that was damaged.
    """
    sides = []
    for stream, name in (first, second):
        (seen,), _ = await states_at(store, stream, [name])
        sides.append(_Side(stream, seen, ViewHistory(seen.state, seen.figures)))
    one, other = sides
    shared = await _shared_past(store, one.stream, other.stream)
    pairs = await _pairs(store, one, other, shared)
    back = {b: a for a, b in pairs.items()}
    only = [*_only("first", one, other, pairs), *_only("second", other, one, back)]
    changed = [*_changed(one, other, pairs)]
    alike = sum(a in one.view.shown and b in other.view.shown for a, b in pairs.items())
    return SessionsDiff(
        one.stream,
        other.stream,
        side_of(one.seen, one.view),
        side_of(other.seen, other.view),
        alike - len(changed),
        await _with_texts(store, one, other, [*only, *changed]),
        await _insertions(store, one, other),
    )


async def _shared_past(store: EventStore, one: str, other: str) -> int:
    """The last position that both streams have from the same record; -1 if they share none."""
    ends = {stream: end async for stream, end in _ancestors(store, one)}
    async for stream, end in _ancestors(store, other):
        if stream in ends:
            return min(end, ends[stream])
    return -1


async def _ancestors(store: EventStore, stream: str) -> AsyncIterator[tuple[str, int]]:
    """The stream and those it was forked from, each with the last position that it has of them."""
    end = None
    name: str | None = stream
    while name is not None:
        info = await store.head(name)
        if info is None:
            return
        end = info.head if end is None else end
        yield name, end
        end = end if info.forked_at is None else min(end, info.forked_at)
        name = info.parent


async def _pairs(store: EventStore, one: _Side, other: _Side, shared: int) -> dict[int, int]:
    """The numbers of ``one``'s messages, each with the number of the same message in ``other``."""
    mine, theirs = _own(one, shared), _own(other, shared)
    past = min(len(side.seen.state.origins) for side in (one, other))
    origins = one.seen.state.origins[:past]
    pairs = {number: number for number, it in enumerate(origins) if it.ref.position <= shared}
    marks = {_mark(ref) for ref in mine} & {_mark(ref) for ref in theirs}
    places: dict[bytes, list[int]] = defaultdict(list)
    async for number, digest in _digests(store, other.stream, theirs, marks):
        places[digest].append(number)
    async for number, digest in _digests(store, one.stream, mine, marks):
        if places[digest]:
            pairs[number] = places[digest].pop(0)
    return pairs


def _own(side: _Side, shared: int) -> list[MessageRef]:
    refs = [origin.ref for origin in side.seen.state.origins]
    return [ref for ref in refs if ref.position > shared]


def _mark(ref: MessageRef) -> tuple[str, bytes]:
    return ref.facts.role, ref.facts.mark


async def _digests(
    store: EventStore, stream: str, refs: Sequence[MessageRef], marks: set[tuple[str, bytes]]
) -> AsyncIterator[tuple[int, bytes]]:
    """Numbers and digests of the bytes of those messages that may be in the other session."""
    wanted = [ref for ref in refs if _mark(ref) in marks]
    for start in range(0, len(wanted), _BATCH):
        some = wanted[start : start + _BATCH]
        bodies = await sound_bodies(store, stream, [address_of(ref) for ref in some])
        for ref, body in zip(some, bodies, strict=True):
            if body.data is not None:
                yield ref.number, blake2b(body.data, digest_size=16).digest()


def _only(which: Which, one: _Side, other: _Side, pairs: dict[int, int]) -> Iterator[SidedMessage]:
    """The messages that ``one`` shows and ``other`` does not."""
    for number in sorted(one.view.shown):
        paired = pairs.get(number)
        if paired is None:
            role = one.seen.state.origins[number].ref.facts.role
            yield SidedMessage(which, number, None, Presence.NOT_ADDED, None, role, None)
        elif paired not in other.view.shown:
            yield _ruled(which, number, paired, other)


def _ruled(which: Which, number: int, paired: int, other: _Side) -> SidedMessage:
    why = other.view.why(paired)
    role = other.seen.state.origins[paired].ref.facts.role
    return SidedMessage(which, number, paired, why.standing, why.ruling, role, None)


def _changed(one: _Side, other: _Side, pairs: dict[int, int]) -> Iterator[SidedMessage]:
    """The messages that one of the two shows whole and the other shortened."""
    for number, paired in sorted(pairs.items()):
        mine, theirs = one.view.shown.get(number), other.view.shown.get(paired)
        if mine is None or theirs is None or mine.tokens == theirs.tokens:
            continue
        if mine.tokens > theirs.tokens:
            yield _ruled("first", number, paired, other)
        else:
            yield _ruled("second", paired, number, one)


async def _with_texts(
    store: EventStore, one: _Side, other: _Side, found: Sequence[SidedMessage]
) -> tuple[SidedMessage, ...]:
    texts: dict[tuple[Which, int], Message | None] = {}
    sides: tuple[tuple[Which, _Side], ...] = (("first", one), ("second", other))
    for which, side in sides:
        numbers = [item.number for item in found if item.session == which]
        places = [address_of(side.seen.state.origins[number].ref) for number in numbers]
        read = await sound_messages(store, side.stream, places)
        texts |= {(which, number): text for number, text in zip(numbers, read, strict=True)}
    return tuple(
        msgspec.structs.replace(item, message=texts[item.session, item.number]) for item in found
    )


async def _insertions(store: EventStore, one: _Side, other: _Side) -> tuple[SidedInsertion, ...]:
    """The insertions of both requests, without those that are equal in both."""
    mine = await _inserted(store, one, "first")
    theirs = await _inserted(store, other, "second")
    return (*_without(mine, theirs), *_without(theirs, mine))


def _without(
    some: Sequence[SidedInsertion], others: Sequence[SidedInsertion]
) -> Iterator[SidedInsertion]:
    texts = [(one.kind, one.message) for one in others]
    return (one for one in some if (one.kind, one.message) not in texts)


async def _inserted(store: EventStore, side: _Side, which: Which) -> list[SidedInsertion]:
    refs = [entry.ref for entry in side.view.entries if isinstance(entry.ref, InsertionRef)]
    texts = await sound_messages(store, side.stream, [address_of(ref) for ref in refs])
    return [
        SidedInsertion(which, ref.kind, ref.stands_for, text)
        for ref, text in zip(refs, texts, strict=True)
    ]


# -- as JSON -------------------------------------------------------------------------------------


class SidedMessageAnswer(msgspec.Struct, frozen=True):
    """A message that the two requests do not show alike."""

    session: Which
    name: str
    number: int
    other: int | None
    presence: Presence
    ruling: ReasonAnswer | None
    role: str
    message: Message | None


class SessionsDiffAnswer(msgspec.Struct, frozen=True):
    """The differences of a request of one session and a request of another."""

    first_session: str
    second_session: str
    first: SideAnswer
    second: SideAnswer
    both: int
    differences: list[SidedMessageAnswer]
    insertions: tuple[SidedInsertion, ...]


def sessions_diff_answer(found: SessionsDiff) -> SessionsDiffAnswer:
    """The difference as JSON."""
    differences = [
        fill(
            SidedMessageAnswer,
            one,
            name=message_name(one.number),
            ruling=reason_answer(one.ruling),
        )
        for one in found.differences
    ]
    sides = {"first": side_answer(found.first), "second": side_answer(found.second)}
    return fill(SessionsDiffAnswer, found, differences=differences, **sides)
