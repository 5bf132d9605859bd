"""The messages that are measured with: about 1 KB of JSON each, in tool rounds of four."""

from __future__ import annotations

import os
import random
import time
from functools import cache
from typing import Any

from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft, Record, make_body
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts

Message = dict[str, Any]

CHARACTERS = 900
"""Of text in a message; with what is around it, about 1 KB of JSON."""


@cache
def _words() -> tuple[str, ...]:
    dice = random.Random(1)  # noqa: S311 - the same words in every run
    letters = "abcdefghijklmnopqrstuvwxyz"
    return tuple("".join(dice.choices(letters, k=dice.randint(2, 11))) for _ in range(5000))


def text(number: int, characters: int = CHARACTERS) -> str:
    """A text of its own for every number, of that length."""
    dice = random.Random(number)  # noqa: S311 - the same text in every run
    made = f"{number}: " + " ".join(dice.choices(_words(), k=characters // 5))
    return made[:characters]


def message(number: int) -> Message:
    """Message ``number``: a question, an answer, a tool call, its result, and again."""
    match number % 4:
        case 0:
            return {"role": "user", "content": text(number)}
        case 1:
            return {"role": "assistant", "content": text(number)}
        case 2:
            call = {"name": "read_file", "arguments": '{"path":"' + text(number, 300) + '"}'}
            return {
                "role": "assistant",
                "content": text(number, 500),
                "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
            }
        case _:
            return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text(number)}


def messages(count: int, first: int = 0) -> list[Message]:
    """``count`` messages from number ``first`` on."""
    return [message(number) for number in range(first, first + count)]


def draft(message: Message) -> Draft:
    """The draft of an event that ``add_message`` makes of a message."""
    name, version, payload = encode_event(events.MessageAdded())
    body = make_body(encode_message(message), encode_facts(read_facts(message)), os.urandom)
    return Draft(os.urandom(16), name, version, time.time_ns(), payload, (body,))


def as_draft(record: Record) -> Draft:
    """What a record says, as a new event."""
    fields = [getattr(record, name) for name in Draft.__struct_fields__[1:]]
    return Draft(os.urandom(16), *fields)
