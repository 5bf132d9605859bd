"""A scripted agent: its messages are written beforehand, the results of its tools are real."""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tools import TOOLS, ToolFailed

Call = tuple[str, dict[str, Any]]


class Untrue(Exception):
    """The tools' results contradict the script: the code has changed, so the script must, too."""


class Agent:
    """Keeps the messages, in Anthropic's dialect."""

    def __init__(self, system: str) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
        self._calls = 0

    def asks(self, text: str) -> None:
        """The person's next task."""
        self.messages.append({"role": "user", "content": text})

    def does(self, *calls: Call, think: str = "", say: str = "") -> list[str]:
        """Add an answer of the model with its tool calls; returns their results, also added."""
        blocks = [*_thinking(think), *_text(say)]
        ids = []
        for name, given in calls:
            self._calls += 1
            ids.append(f"toolu_{_digest(f'call {self._calls}', 12)}")
            blocks.append({"type": "tool_use", "id": ids[-1], "name": name, "input": given})
        self.messages.append({"role": "assistant", "content": blocks})
        with ThreadPoolExecutor() as pool:
            outcomes = list(pool.map(_run, calls))
        results = []
        for call_id, (text, failed) in zip(ids, outcomes, strict=True):
            block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            results.append({**block, "is_error": True} if failed else block)
        self.messages.append({"role": "user", "content": results})
        return [text for text, _ in outcomes]

    def answers(self, text: str, think: str = "") -> None:
        """The model's last words in a turn."""
        self.messages.append({"role": "assistant", "content": [*_thinking(think), *_text(text)]})


def true(claim: bool, words: str) -> None:
    """Raise Untrue when the code no longer does what the script says about it."""
    if not claim:
        raise Untrue(words)


def _run(call: Call) -> tuple[str, bool]:
    name, given = call
    try:
        return TOOLS[name](**given), False
    except ToolFailed as error:
        return str(error), True


def _thinking(text: str) -> list[dict[str, Any]]:
    if not text:
        return []
    # Made here, in the form of a real one: opaque, and to be sent back byte for byte.
    signature = base64.b64encode(hashlib.sha512(text.encode()).digest() * 2).decode()
    return [{"type": "thinking", "thinking": text, "signature": signature}]


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
