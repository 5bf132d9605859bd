"""What the cycle's hosts share: a context that is a list, a provider with a window, tool rounds."""

from __future__ import annotations

from importlib import import_module
from typing import Any

Message = dict[str, Any]


class ListContext:
    """The least that a context manager can do."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        self._messages.append(message)

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        return list(self._messages)

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self._messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self._messages = list(messages)

    async def clear(self) -> None:
        self._messages = []


class WindowProvider:
    name = "measured"

    def __init__(self, window: int) -> None:
        self._window = window

    def get_info(self) -> Any:
        defaults = {"context_window": self._window, "max_output_tokens": 8_000}
        made = import_module("amplifier_core").ProviderInfo
        return made(id=self.name, display_name=self.name, defaults=defaults)


def tool_rounds(count: int) -> list[dict[str, Any]]:
    """A question, a tool call, its result of 4 KB and an answer, as Amplifier's loops add them."""
    made: list[dict[str, Any]] = []
    for number in range(count // 4):
        call = {"id": f"call-{number}", "name": "read"}
        path = {"path": "src/" + "a" * 200}
        blocks = [
            {"type": "text", "text": "Let me look. " * 3, "visibility": None},
            {"type": "tool_call", **call, "input": path},
        ]
        calls = [{"id": call["id"], "tool": "read", "arguments": path}]
        text = [{"type": "text", "text": "An answer. " * 15, "visibility": None}]
        result = f"line {number} of a text\n" * 200
        made += [
            {"role": "user", "content": f"Question {number}. " * 10},
            {"role": "assistant", "content": blocks, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call["id"], "content": result},
            {"role": "assistant", "content": text},
        ]
    return made
