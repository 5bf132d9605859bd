"""A request of Amazon Bedrock's Converse API as its rules speak of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class BedrockBlock(msgspec.Struct, frozen=True):
    """A content block, which is an object with one member: its name and its value."""

    path: str
    name: str
    value: Any
    members: int

    @property
    def tool_id(self) -> str:
        """The id of a call, or of the call that a result answers."""
        return str(self.value.get("toolUseId")) if isinstance(self.value, Mapping) else ""


class BedrockMessage(msgspec.Struct, frozen=True):
    """A message as it was sent: Converse merges nothing."""

    number: int
    role: str
    blocks: tuple[BedrockBlock, ...]

    @property
    def path(self) -> str:
        """Its place in the request, as errors name it."""
        return f"messages.{self.number}"

    def ids(self, name: str) -> list[str]:
        """The ids in the blocks of this name, in order."""
        return [block.tool_id for block in self.blocks if block.name == name]


class BedrockRequest(msgspec.Struct, frozen=True):
    """A parsed request; the address has the model, and ``modelId`` repeats it for the rules."""

    body: Mapping[str, Any]
    messages: tuple[BedrockMessage, ...]

    def neighbours(self) -> Iterator[tuple[BedrockMessage, BedrockMessage]]:
        """Each assistant message with the one after it, which is empty at the end."""
        for place, message in enumerate(self.messages):
            if message.role == "assistant":
                end = BedrockMessage(message.number + 1, "user", ())
                yield message, (*self.messages[place + 1 : place + 2], end)[0]

    def blocks(self) -> Iterator[tuple[BedrockMessage, BedrockBlock]]:
        """Every block with its message."""
        for message in self.messages:
            for block in message.blocks:
                yield message, block


def read_bedrock_request(body: Mapping[str, Any]) -> BedrockRequest:
    """Parse a request; what is no object is left out."""
    sent = body.get("messages")
    messages = tuple(
        BedrockMessage(number, str(row.get("role")), _blocks(number, row.get("content")))
        for number, row in enumerate(sent if isinstance(sent, list) else ())
        if isinstance(row, Mapping)
    )
    return BedrockRequest(body, messages)


def _blocks(number: int, content: object) -> tuple[BedrockBlock, ...]:
    found = []
    for place, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, Mapping):
            name = next(iter(block), "")
            path = f"messages.{number}.content.{place}"
            found.append(BedrockBlock(path, name, block.get(name), len(block)))
    return tuple(found)
