"""Transcripts whose needs are known, for tests of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventctx.policies.policy import Visible
from tests.sessions import model, user
from tests.transcripts import Message

NAMES = [f"module_{letter}/file_{letter}.py" for letter in "abcdefghijklmnopqrst"]


def reading(number: int, text: str, size: int = 3_000) -> list[Message]:
    """A round in which a tool gives ``text`` and filler."""
    function = {"name": "read", "arguments": f'{{"n": {number}}}'}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    filler = " ".join([f"w{number}x{word}" for word in range(size // 8)])
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"{text}\n{filler}"},
    ]


def session(rounds: int = 10, *, size: int = 3_000) -> list[Message]:
    """Rounds that each name a file; at the end the model names the first one again."""
    messages = [user("Look around in the modules. Never touch the main program.")]
    for number in range(rounds):
        messages += reading(number, f"defined in {NAMES[number]} as it is", size)
    return [*messages, model(f"I change {NAMES[0]} now"), user("Go on."), model("Done.")]


def proposing(name: str, propose: Callable[[Visible], Any]) -> Any:
    fields: dict[str, Any] = {"name": name, "version": 1, "max_messages": None}
    fields["propose"] = lambda self, visible, budget, state: propose(visible)
    return type(name, (), fields)()
