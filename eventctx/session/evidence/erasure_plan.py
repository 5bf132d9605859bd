"""What an erasure takes along: everything in a session that was made of the erased messages.

By what the records say: the whole tool round of a message (inputs and outputs of one call), its
shortened copies, the summaries that stand for it, the indexes that quote or name it. By their
words: raw parts of an imported file, what a host was sent, hints, recalled memories that share a
long enough part with it. Other messages are never taken along; those that repeat the words are
named, so that a person can decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from eventctx.errors import DecodeError, InvalidSetting
from eventctx.log.codec import decode_event
from eventctx.log.events import (
    PostCompact,
    RequestContent,
    RequestPrepared,
    ToolError,
    ToolPost,
)
from eventctx.log.plan import Insertion
from eventctx.log.raw_parts import raw_of
from eventctx.log.record import Body, Record
from eventctx.log.store import Address, EventStore
from eventctx.messages.canonical import message_digest, sent_digest
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import Facts, decode_facts, encode_facts, outline_facts
from eventctx.messages.overlap import Overlap, texts_in, words_in
from eventctx.policies.index.text import messages_behind

_MESSAGES = ("context:message_added", "context:messages_set")


class Placed(NamedTuple):
    """A message of a session: its number, the address of its body, and its facts."""

    number: int
    address: Address
    facts: Facts


class StreamErasure(NamedTuple):
    """What goes in one stream: message numbers, and the addresses of bodies with new facts.

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
    """The numbers, and those of all messages that make or answer the same tool calls."""
    by_call: dict[str, list[int]] = {}
    for one in messages:
        for call in _calls_of(one.facts):
            by_call.setdefault(call, []).append(one.number)
    found: set[int] = set()
    waiting = list(numbers)
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        found.add(number)
        facts = messages[number].facts
        for call in _calls_of(facts):
            waiting += by_call[call]
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
    """What goes in one stream with the messages ``numbers`` of it. Reads all of the stream."""
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
            for index in _derived(record, numbers, calls, words):
                bodies[Address(record.position, index)] = _outline(record.bodies[index])
        if any(map(words.holds, _texts(record.payload))):
            payloads.append(record.position)
    return StreamErasure(stream, tuple(sorted(numbers)), bodies, tuple(repeated), tuple(payloads))


def _calls_of(facts: Facts) -> tuple[str, ...]:
    return (*facts.calls, *facts.results)


def _derived(record: Record, numbers: set[int], calls: set[str], words: Overlap) -> set[int]:
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
    data = raw_of(record)
    for line in (data or b"").split(b"\n"):
        yield from _texts(line)


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
