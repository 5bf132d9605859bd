"""Erasure: destroys contents of messages and all that was made of them, wherever it is reachable.

The order makes a cut at any point harmless. ``ERASING`` is set in the store first; bodies, facts
and snapshots go in one transaction with the ``context:erased`` records of every stream that reaches
them; then the log is emptied and the search index forgets the words. ``ERASING`` is taken back
last, so the next opening knows if something is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from eventctx.errors import StreamNotFound
from eventctx.log.codec import encode_event
from eventctx.log.events import Erased
from eventctx.log.record import Draft, Record
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.messages.overlap import Overlap
from eventctx.messages.thinking import generation_of
from eventctx.projections.view import planned
from eventctx.session.appends.pending import Clock
from eventctx.session.evidence.erasure_plan import (
    Placed,
    StreamErasure,
    check_numbers,
    messages_of,
    plan_stream,
    sent_copies,
    texts_of,
    whole_rounds,
)
from eventctx.session.evidence.unfinished import ERASING
from eventctx.session.repository import load


class ErasureResult(msgspec.Struct, frozen=True):
    """What was erased, or would be.

    ``numbers`` are the message numbers, with those of their tool rounds; ``bodies`` counts all
    contents that went, copies and summaries among them; ``sessions`` are all that could reach them.
    ``repeated`` names other messages that hold the same words, ``payloads`` records that hold them
    where the chain covers it; both are ``(session, number or position)`` and stay. ``scrubbed`` is
    false while a reader of another process keeps an older state of the file alive.
    """

    session: str
    numbers: tuple[int, ...]
    bodies: int
    sessions: tuple[str, ...]
    repeated: tuple[tuple[str, int], ...]
    payloads: tuple[tuple[str, int], ...]
    scrubbed: bool


class _Family(NamedTuple):
    """The streams that share records with one, by name; finds the one that holds a record."""

    streams: Mapping[str, StreamInfo]

    def owner(self, stream: str, position: int) -> str:
        """The stream whose own record lies at ``position`` of ``stream``."""
        met: set[str] = set()
        info = self.streams[stream]
        while info.parent is not None and info.forked_at is not None and info.stream not in met:
            parent = self.streams.get(info.parent)
            if position > info.forked_at or parent is None:
                break
            met.add(info.stream)
            info = parent
        return info.stream


class ErasurePlan(NamedTuple):
    """What goes in every stream, and the words by which copies are found."""

    streams: tuple[StreamErasure, ...]
    words: Overlap

    @property
    def places(self) -> set[tuple[str, Address]]:
        """All addresses, by the stream under which they go."""
        return {(one.stream, address) for one in self.streams for address in one.bodies}


async def plan(
    store: EventStore, session: str, numbers: Sequence[int], words: Overlap | None = None
) -> ErasurePlan:
    """Find all that goes with the messages ``numbers`` of a session, in every stream.

    ``words`` are those of an earlier plan, whose texts are gone. Raises StreamNotFound,
    InvalidSetting for a number without a message, LogCorrupted.
    """
    family = await _family(store, session)
    messages = {session: await messages_of(store, session)}
    check_numbers(session, messages[session], numbers)
    seeds = _placed(family, session, messages[session], set(numbers))
    chosen = await _reaching(store, family, messages, seeds)
    if words is None:
        addresses = [messages[session][number].address for number in sorted(chosen[session])]
        addresses += await sent_copies(store, session, chosen[session])
        words = await texts_of(store, session, addresses)
    found = [
        await plan_stream(store, name, messages[name], picked, words)
        for name, picked in chosen.items()
    ]
    return ErasurePlan(tuple(found), words)


async def _family(store: EventStore, session: str) -> _Family:
    """What a session was forked from, and all that was forked from that. Raises StreamNotFound."""
    streams: dict[str, StreamInfo] = {}
    first, name = session, session
    while (info := await store.head(name)) is not None and not info.deleted:
        streams[name] = info
        first, parent = name, info.parent
        if parent is None or parent in streams:
            break
        name = parent
    if session not in streams:
        raise StreamNotFound(session)
    waiting, met = [first], {first}
    while waiting:
        forks = [name for name in await store.forks(waiting.pop()) if name not in met]
        met.update(forks)
        waiting += forks
        for name in forks:
            if (info := await store.head(name)) is not None and not info.deleted:
                streams[name] = info
    return _Family(streams)


async def _reaching(
    store: EventStore,
    family: _Family,
    messages: dict[str, list[Placed]],
    seeds: set[tuple[str, Address]],
) -> dict[str, set[int]]:
    """The message numbers of every stream that reaches one of the places, with whole rounds.

    A fork may answer a call that its parent made, so rounds are completed until none grows.
    """
    chosen: dict[str, set[int]] = {}
    before = -1
    while len(seeds) != before:
        before = len(seeds)
        for name, info in family.streams.items():
            if not any(_reaches(family, info, owner, at) for owner, at in seeds):
                continue
            if name not in messages:
                messages[name] = await messages_of(store, name)
            own = messages[name]
            picked = {
                one.number
                for one in own
                if (family.owner(name, one.address.position), one.address) in seeds
            }
            chosen[name] = whole_rounds(own, picked)
            seeds = seeds | _placed(family, name, own, chosen[name])
    return chosen


def _reaches(family: _Family, info: StreamInfo, owner: str, at: Address) -> bool:
    return at.position <= info.head and family.owner(info.stream, at.position) == owner


def _placed(
    family: _Family, stream: str, messages: Sequence[Placed], numbers: set[int]
) -> set[tuple[str, Address]]:
    """The places of messages, by the streams that hold them."""
    places = [messages[number].address for number in numbers]
    return {(family.owner(stream, at.position), at) for at in places}


async def erase(
    store: EventStore,
    session: str,
    numbers: Sequence[int],
    reason: str,
    clock: Clock,
    random: Callable[[int], bytes],
) -> tuple[ErasurePlan, int, tuple[Record, ...]]:
    """Erase; returns the plan, the number of contents that went, and the records appended.

    Whoever writes to the session meanwhile may make a new summary of the messages, so it is looked
    for again until none is found.
    """
    made = await plan(store, session, numbers)
    await store.save_checkpoint(ERASING, 1)
    erased = 0
    appended: tuple[Record, ...] = ()
    done: set[tuple[str, Address]] = set()
    while not made.places <= done:
        notes = {one.stream: await _note(store, one, reason, clock, random) for one in made.streams}
        outcome = await store.erase({one.stream: one.bodies for one in made.streams}, notes)
        erased, appended = erased + outcome.bodies, (*appended, *outcome.records)
        done |= made.places
        made = await plan(store, session, numbers, made.words)
    return made, erased, appended


async def _note(
    store: EventStore,
    erasure: StreamErasure,
    reason: str,
    clock: Clock,
    random: Callable[[int], bytes],
) -> Draft:
    """The record of an erasure in one stream."""
    loaded = await load(store, erasure.stream)
    if loaded is None:
        raise StreamNotFound(erasure.stream)
    generation = generation_of(loaded.view.calibration.model)
    stripped = planned.stripped_behind(loaded.view.layout, set(erasure.bodies), generation)
    event = Erased(
        numbers=erasure.numbers,
        bodies=tuple(sorted((at.position, at.index) for at in erasure.bodies)),
        reason=reason,
        unbound=stripped,
    )
    name, version, payload = encode_event(event)
    return Draft(random(16), name, version, max(clock(), loaded.time), payload)


def result_of(session: str, made: ErasurePlan, bodies: int, *, scrubbed: bool) -> ErasureResult:
    """The outcome of a plan for callers."""
    own = next(one for one in made.streams if one.stream == session)
    return ErasureResult(
        session,
        own.numbers,
        bodies,
        tuple([one.stream for one in made.streams]),
        tuple([(one.stream, number) for one in made.streams for number in one.repeated]),
        tuple([(one.stream, at) for one in made.streams for at in one.payloads]),
        scrubbed,
    )
