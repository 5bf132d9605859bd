"""Hypothesis strategies for agent transcripts in several dialects, with the flaws of real ones.

A transcript is built from steps (a person's message, an answer of the model, a tool round, a crash
in mid-round, a hook's row between call and result, an orphan, a duplicate, a late result), so that
every dialect gets the same stories.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from eventctx.testing.requests import calls_of as calls_of
from eventctx.testing.requests import is_system as is_system
from eventctx.testing.requests import refusal as refusal
from eventctx.testing.requests import results_of as results_of

Message = dict[str, Any]
DIALECTS = ("anthropic", "openai", "amplifier", "responses")


def human(dialect: str, text: str) -> Message:
    if dialect == "anthropic":
        return {"role": "user", "content": [{"type": "text", "text": text}]}
    if dialect == "responses":
        block = {"type": "input_text", "text": text}
        return {"type": "message", "role": "user", "content": [block]}
    return {"role": "user", "content": text}


def answer(dialect: str, text: str) -> list[Message]:
    if dialect == "anthropic":
        return [{"role": "assistant", "content": [{"type": "text", "text": text}]}]
    if dialect == "responses":
        block = {"type": "output_text", "text": text}
        return [{"type": "message", "role": "assistant", "content": [block]}]
    return [{"role": "assistant", "content": text}]


def calls(dialect: str, ids: list[str], thinking: str, size: int) -> list[Message]:
    given = {"path": "src/" + "a" * size, "n": 1}
    text = str(given).replace("'", '"')
    thought: Message = {"type": "thinking", "thinking": thinking}
    if dialect == "anthropic":
        signed = {**thought, "signature": "sig+/=" + thinking[:5]}
        blocks = [{"type": "tool_use", "id": i, "name": "read", "input": dict(given)} for i in ids]
        return [{"role": "assistant", "content": [signed, *blocks]}]
    if dialect == "responses":
        call = {"type": "function_call", "name": "read", "arguments": text}
        sealed = {"type": "reasoning", "id": "rs_" + ids[0], "summary": []}
        return [{**sealed, "encrypted_content": "gA=="}, *({**call, "call_id": i} for i in ids)]
    if dialect == "amplifier":
        rows = [{"type": "tool_call", "id": i, "name": "read", "input": dict(given)} for i in ids]
        again = [{"id": one, "tool": "read", "arguments": dict(given)} for one in ids]
        first = {**thought, "signature": "s", "visibility": None}
        return [{"role": "assistant", "content": [first, *rows], "tool_calls": again}]
    called = {"type": "function", "function": {"name": "read", "arguments": text}}
    functions = [{"id": one, **called} for one in ids]
    return [{"role": "assistant", "content": None, "tool_calls": functions}]


def result(dialect: str, call_id: str, text: str) -> Message:
    if dialect == "anthropic":
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return {"role": "user", "content": [block]}
    if dialect == "responses":
        return {"type": "function_call_output", "call_id": call_id, "output": text}
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def hook_row(text: str) -> Message:
    metadata = {"source": "hook", "ephemeral": False}
    return {**human("", f"<system-reminder>{text}</system-reminder>"), "metadata": metadata}


# -- stories -------------------------------------------------------------------------------------


@dataclass
class Story:
    """A transcript under construction; ``waiting`` are open calls that may still be answered."""

    dialect: str
    messages: list[Message] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    rounds: int = 0

    def text(self, size: int, mark: int) -> str:
        return f"{mark}: " + "word " * (size // 5)


SIZES = st.sampled_from([0, 20, 200, 2_000, 9_000])
_STEPS = "human answer round round round crash hook orphan duplicate late system repeat"
STEPS = st.sampled_from(_STEPS.split())


@st.composite
def stories(draw: st.DrawFn, dialect: str | None = None, most: int = 14) -> Story:
    chosen = dialect or draw(st.sampled_from(DIALECTS))
    story = Story(chosen)
    if draw(st.booleans()):
        story.messages.append({"role": "system", "content": "You are careful."})
    if draw(st.booleans()):
        story.messages.append(human(chosen, "begin"))
    for mark in range(draw(st.integers(1, most))):
        _step(draw, story, draw(STEPS), mark)
    return story if story.messages else Story(chosen, [human(chosen, "alone")])


def _step(draw: st.DrawFn, story: Story, step: str, mark: int) -> None:
    dialect, messages = story.dialect, story.messages
    text = story.text(draw(SIZES), mark)
    if step == "human":
        messages.append(human(dialect, text))
    elif step == "repeat":
        messages.append(human(dialect, "the same words"))
    elif step == "answer":
        messages.extend(answer(dialect, text))
    elif step == "hook":
        messages.append(hook_row(text))
    elif step == "system":
        messages.append({"role": "system", "content": text[:50]})
    elif step == "orphan":
        messages.append(result(dialect, f"nowhere{mark}", text))
    elif step == "late" and story.waiting:
        messages.append(result(dialect, story.waiting.pop(0), text))
    elif step == "duplicate" and messages and results_of(messages[-1]):
        messages.append(dict(messages[-1]))
    elif step in ("round", "crash"):
        _round(draw, story, mark, answered=step == "round")


def _round(draw: st.DrawFn, story: Story, mark: int, *, answered: bool) -> None:
    story.rounds += 1
    ids = [f"call_{story.rounds}_{n}" for n in range(draw(st.integers(1, 3)))]
    if draw(st.integers(0, 9)) == 0:
        ids[0] = "call_again"
    story.messages.extend(calls(story.dialect, ids, f"think {mark}", draw(SIZES) // 10))
    given = list(ids) if answered else ids[: draw(st.integers(0, len(ids) - 1))]
    story.waiting.extend(one for one in ids if one not in given)
    for one in draw(st.permutations(given)):
        if draw(st.integers(0, 5)) == 0:
            story.messages.append(hook_row(f"between {mark}"))
        story.messages.append(result(story.dialect, one, story.text(draw(SIZES), mark)))
