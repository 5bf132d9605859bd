"""Short sessions, and what they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from eventctx.messages.facts_reader import read_facts
from eventctx.projections.evidence import EvidenceSettings, Need, ReusedSpan, needs
from tests.sessions import model as says
from tests.sessions import user as asks

Message = dict[str, Any]

LINE = "The brown fox jumps over nine lazy dogs"
"""39 characters that make a run."""


def told(text: str) -> Message:
    return {"role": "system", "content": text}


def calls(call: str = "c1", **arguments: Any) -> Message:
    block = {"type": "tool_use", "id": call, "name": "run", "input": arguments}
    return {"role": "assistant", "content": [block]}


def returns(text: Any, call: str = "c1") -> Message:
    block = {"type": "tool_result", "tool_use_id": call, "content": text}
    return {"role": "user", "content": [block]}


def last_need(messages: Sequence[Message], **settings: Any) -> Need:
    return needs(messages, EvidenceSettings(**settings))[-1]


def spans_of(messages: Sequence[Message], **settings: Any) -> list[ReusedSpan]:
    """The spans of the last action."""
    return list(last_need(messages, **settings).spans)


def texts_of(messages: Sequence[Message], **settings: Any) -> list[str]:
    return [span.text for span in spans_of(messages, **settings)]


def reused(source: str, action: str, **settings: Any) -> list[str]:
    """The texts of the spans of an action behind one message."""
    return texts_of([asks(source), says(action)], **settings)


def is_models(message: Message) -> bool:
    return read_facts(message).kind == "assistant"


def laid_over(actions: Sequence[Message], session: Sequence[Message]) -> list[Message]:
    """The session with the actions of another in the places of its own, as far as they go."""
    own = [list(run) for models, run in groupby(actions, is_models) if models]
    found: list[Message] = []
    for models, run in groupby(session, is_models):
        if not models:
            found += run
        elif found:
            if not own:
                break
            found += own.pop(0)
    return found


def all_spans(found: Iterable[Need]) -> list[ReusedSpan]:
    return [span for need in found for span in need.spans]
