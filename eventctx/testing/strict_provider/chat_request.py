"""A request of OpenAI's Chat Completions API as its rules speak of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class ChatMessage(msgspec.Struct, frozen=True):
    """A message; ``calls`` are its tool calls that are objects."""

    number: int
    role: str
    fields: Mapping[str, Any]
    calls: tuple[Mapping[str, Any], ...]

    @property
    def path(self) -> str:
        """Its place in the request, as errors name it."""
        return f"messages[{self.number}]"

    @property
    def content(self) -> Any:
        """A text, a list of parts, or None."""
        return self.fields.get("content")

    @property
    def call_ids(self) -> list[str]:
        """The ids of its calls, in order."""
        return [str(call.get("id")) for call in self.calls]

    @property
    def answers(self) -> str:
        """The id of the call that a tool message answers."""
        return str(self.fields.get("tool_call_id"))


class ChatRequest(msgspec.Struct, frozen=True):
    """A parsed request."""

    body: Mapping[str, Any]
    messages: tuple[ChatMessage, ...]

    def rounds(self) -> Iterator[tuple[ChatMessage, list[ChatMessage]]]:
        """Each message that is no tool's, with the tool messages directly after it."""
        place = 0
        while place < len(self.messages):
            message = self.messages[place]
            end = place + 1
            while end < len(self.messages) and self.messages[end].role == "tool":
                end += 1
            yield message, list(self.messages[place + 1 : end])
            place = end


def read_chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Parse a request; what is no object is left out."""
    sent = body.get("messages")
    messages = []
    for number, row in enumerate(sent if isinstance(sent, list) else ()):
        if isinstance(row, Mapping):
            calls = row.get("tool_calls")
            objects = (call for call in calls or () if isinstance(call, Mapping))
            found = tuple(objects) if isinstance(calls, list) else ()
            messages.append(ChatMessage(number, str(row.get("role")), row, found))
    return ChatRequest(body, tuple(messages))
