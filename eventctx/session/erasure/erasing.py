"""Erasure: destroys contents of messages and all that was made of them, wherever it is reachable.

A plan says what goes along. By the records: the whole tool round of a message (inputs and outputs
of one call), its shortened copies, the summaries that stand for it, the indexes that quote or name
it. By the words: raw parts of an imported file, contents that a host was sent, hints, recalled
memories that share a long enough part with it; hints that name a thing that it names, too. Other
messages never go along; those that repeat the words are named, so that a person can decide.

The order makes a cut at any point harmless. ``ERASING`` is set in the store first; bodies, facts
and snapshots go in one transaction with the ``context:erased`` records of every stream that reaches
them; then the log is emptied and the search index forgets the words. ``ERASING`` is taken back
last, so the next opening knows if something is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from eventctx.errors import DecodeError, InvalidSetting, StreamNotFound
from eventctx.log.codec import decode_event, encode_event, raw_of
from eventctx.log.events import (
    Erased,
    PostCompact,
    PreCompact,
    RequestContent,
    RequestPrepared,
    ToolError,
    ToolPost,
)
from eventctx.log.plan import Insertion
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.messages.encoding import decode_body, message_digest, sent_digest
from eventctx.messages.facts import Facts, decode_facts, encode_facts, outline_facts
from eventctx.messages.overlap import Overlap, texts_in, words_in
from eventctx.messages.thinking import generation_of
from eventctx.messages.tool_rounds import answers_to
from eventctx.policies.index import messages_behind
from eventctx.projections.view import planned
from eventctx.session.erasure import ERASING
from eventctx.session.pending import Clock
from eventctx.session.repository import load

_MESSAGES = ("context:message_added", "context:messages_set")


class Placed(NamedTuple):
    """A message of a session: its number, the address of its body, and its facts."""

    number: int
    address: Address
    facts: Facts


class StreamErasure(NamedTuple):
    """The erasure of one stream: message numbers, and the addresses of bodies with new facts.

    ``repeated`` are the numbers of other messages that hold one of the erased texts as a whole, and
    ``payloads`` the positions of records that hold one outside of their bodies, where the chain
    covers it: such as an error message of a tool.
    """

    stream: str
    numbers: tuple[int, ...]
    bodies: dict[Address, bytes]
    repeated: tuple[int, ...] = ()
    payloads: tuple[int, ...] = ()


async def messages_of(store: EventStore, stream: str) -> list[Placed]:
    """All messages that were ever added to a stream, by number. Raises StreamNotFound."""
    found: list[Placed] = []
    async for record in store.read(stream, bodies=False):
        if record.type in _MESSAGES:
            # A set's own bodies are its new messages, in rising order of their numbers.
            for index, body in enumerate(record.bodies):
                address = Address(record.position, index)
                found.append(Placed(len(found), address, decode_facts(body.facts)))
    return found


def whole_rounds(messages: Sequence[Placed], numbers: Iterable[int]) -> set[int]:
    """The numbers, and those of all messages that make or answer the same tool calls.

    A result answers the last call before it that has its id. Programs give ids again, and some
    give none but the tool's name, so equal ids alone tie nothing together.
    """
    tied: dict[int, set[int]] = {one.number: {one.number} for one in messages}
    last: dict[str, int] = {}
    for one in messages:
        for result in one.facts.results:
            if (caller := last.get(result)) is not None:
                tied[one.number].add(caller)
                tied[caller].add(one.number)
        for call in one.facts.calls:
            last.update(dict.fromkeys(answers_to(call), one.number))
    found: set[int] = set()
    waiting = list(numbers)
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += tied[number]
    return found


async def sent_copies(store: EventStore, stream: str, numbers: set[int]) -> list[Address]:
    """Where the messages ``numbers`` are stored once more, as a program sent them."""
    return [
        Address(record.position, 0)
        async for record in store.read(stream, bodies=False)
        if record.type == "context:request_content" and _carries(decode_event(record), numbers)
    ]


def _carries(event: object, numbers: set[int]) -> bool:
    return isinstance(event, RequestContent) and not numbers.isdisjoint(event.numbers)


async def texts_of(store: EventStore, stream: str, addresses: Sequence[Address]) -> Overlap:
    """The words of the messages at ``addresses``, to find their copies.

    With them the digests under which a program may have recorded the messages as it sent them: of a
    short message a digest without salt tells as much as its text.
    """
    texts: list[str] = []
    for body in await store.bodies(stream, addresses):
        if body.data is not None:
            message = decode_body(body.data)
            texts += words_in(message)
            if isinstance(message, dict):  # what an edit made no message has no such digest
                texts += {message_digest(message).hex(), sent_digest(message).hex()}
    return Overlap(texts)


async def plan_stream(
    store: EventStore,
    stream: str,
    messages: Sequence[Placed],
    numbers: set[int],
    words: Overlap,
) -> StreamErasure:
    """The erasure of the messages ``numbers`` of one stream. Reads all of the stream."""
    bodies = {
        messages[number].address: encode_facts(outline_facts(messages[number].facts))
        for number in numbers
    }
    repeated: list[int] = []
    payloads: list[int] = []
    calls = {call for number in numbers for call in _calls_of(messages[number].facts)}
    by_address = {one.address: one.number for one in messages}
    async for record in store.read(stream):
        if record.type in _MESSAGES:
            for index, body in enumerate(record.bodies):
                address = Address(record.position, index)
                if address not in bodies and any(map(words.holds, _texts(body.data))):
                    repeated.append(by_address[address])
        else:
            for index in _find_derived(record, numbers, calls, words):
                bodies[Address(record.position, index)] = _outline(record.bodies[index])
        if any(map(words.holds, _texts(record.payload))):
            payloads.append(record.position)
    return StreamErasure(stream, tuple(sorted(numbers)), bodies, tuple(repeated), tuple(payloads))


def _calls_of(facts: Facts) -> tuple[str, ...]:
    """The ids by which a call and its result know each other."""
    return (*chain.from_iterable(map(answers_to, facts.calls)), *facts.results)


def _find_derived(record: Record, numbers: set[int], calls: set[str], words: Overlap) -> set[int]:
    """The indexes of a record's bodies that were made of the messages or share their words.

    The kept answers of their tool calls, ``calls``, are among them.
    """
    if not record.bodies:
        return set()
    try:
        event = decode_event(record)
    except DecodeError:
        # A record that cannot be read may hold anything of the messages.
        return set(range(len(record.bodies)))
    found: set[int] = set()
    insertions: tuple[Insertion, ...] = ()
    if isinstance(event, PostCompact) and event.plan is not None:
        plan = event.plan
        found |= {s.body for s in plan.shortened if s.at is None and s.number in numbers}
        insertions = plan.insertions
    elif isinstance(event, RequestPrepared):
        insertions = event.insertions
    elif _carries(event, numbers) or _answers(event, calls):
        found.add(0)
    elif isinstance(event, PreCompact) and event.hint is not None:
        # It is a few words about what matters, so what it repeats of a message is short.
        hint = record.bodies[event.hint].data if event.hint < len(record.bodies) else None
        if any(map(words.names, _texts(hint))):
            found.add(event.hint)
    made_here = [one for one in insertions if one.at is None and one.body < len(record.bodies)]
    found |= {
        one.body
        for one in made_here
        if _stands_for(one, numbers) or _indexes(one, record.bodies[one.body], numbers)
    }
    for index, body in enumerate(record.bodies):
        if index not in found and any(map(words.shares, _texts_of(record, body))):
            found.add(index)
    return {index for index in found if index < len(record.bodies)}


def _answers(event: object, calls: set[str]) -> bool:
    return isinstance(event, ToolPost | ToolError) and event.call_id in calls


def _stands_for(insertion: Insertion, numbers: set[int]) -> bool:
    # A summary of summaries was made of all that lies between its ends.
    runs = insertion.stands_for
    return bool(runs) and any(runs[0][0] <= number <= runs[-1][1] for number in numbers)


def _indexes(insertion: Insertion, body: Body, numbers: set[int]) -> bool:
    """Whether an insertion is an index that quotes or names one of these messages."""
    if insertion.kind != "notice" or not body.data:
        return False
    try:
        return not numbers.isdisjoint(messages_behind(decode_body(body.data)))
    except msgspec.DecodeError:
        return True


def _texts_of(record: Record, body: Body) -> Iterator[str]:
    if record.type != "import:raw":
        yield from _texts(body.data)
        return
    lines = (raw_of(record) or b"").split(b"\n")
    for line in lines:
        yield from _texts(line)
    if len(lines) > 1 and not _is_json(lines[1]):
        yield b" ".join(lines[1:]).decode("utf-8", "replace")  # a text may go over several lines


def _is_json(line: bytes) -> bool:
    try:
        decode_body(line)
    except msgspec.DecodeError:
        return False
    return True


def _texts(data: bytes | None) -> Iterator[str]:
    """The texts in stored JSON; of anything else, all of it as one text."""
    if not data:
        return
    try:
        yield from texts_in(decode_body(data))
    except msgspec.DecodeError:
        yield data.decode("utf-8", "replace")


def _outline(body: Body) -> bytes:
    try:
        return encode_facts(outline_facts(decode_facts(body.facts))) if body.facts else b""
    except DecodeError:
        return b""


def check_numbers(session: str, messages: Sequence[Placed], numbers: Sequence[int]) -> None:
    """Raise InvalidSetting for numbers that the session does not have."""
    wrong: list[Any] = [n for n in numbers if type(n) is not int or not 0 <= n < len(messages)]
    if wrong or not numbers:
        known = f"numbers from 0 to {len(messages) - 1}" if messages else "no number yet"
        raise InvalidSetting(
            f"erase of {session!r}: expected {known}, found {wrong or 'none'}; "
            f"`eventctx transcript {session}` lists them"
        )


class ErasureResult(msgspec.Struct, frozen=True):
    """The contents that were erased, or would be.

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
    """The erasure of every stream, and the words by which copies are found."""

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
    seeds = _place_messages(family, session, messages[session], set(numbers))
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
    """The ancestors of a session, and all their forks. Raises StreamNotFound."""
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
            seeds = seeds | _place_messages(family, name, own, chosen[name])
    return chosen


def _reaches(family: _Family, info: StreamInfo, owner: str, at: Address) -> bool:
    return at.position <= info.head and family.owner(info.stream, at.position) == owner


def _place_messages(
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
    stripped = planned.refused_thinking_after(loaded.view.layout, set(erasure.bodies), generation)
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
