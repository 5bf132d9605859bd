"""A request of Anthropic's Messages API as rows, turns and loops, as its rules speak of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from eventctx.testing.strict_provider.models import ClaudeModel, read_model

THINKING: Final = ("thinking", "redacted_thinking")
SERVER_CALLS: Final = ("server_tool_use", "mcp_tool_use")


class ClaudeBlock(msgspec.Struct, frozen=True):
    """A content block; ``path`` is its place, ``messages.2.content.0``."""

    path: str
    type: str
    fields: Mapping[str, Any]

    @property
    def is_server_result(self) -> bool:
        """Whether the API itself answered a call with this block."""
        return self.type.endswith("_tool_result")  # a tool_result is the client's


class ClaudeMessage(msgspec.Struct, frozen=True):
    """A message as it was sent; ``content`` is None where the message has none."""

    number: int
    role: str
    content: Any
    blocks: tuple[ClaudeBlock, ...]
    fields: Mapping[str, Any]


class MergedMessage(msgspec.Struct, frozen=True):
    """Neighbours of one role, merged as the API does; ``number`` is the first message's."""

    number: int
    role: str
    blocks: tuple[ClaudeBlock, ...]

    def of_type(self, *types: str) -> list[ClaudeBlock]:
        """The blocks of these types, in order."""
        return [block for block in self.blocks if block.type in types]

    @property
    def only_results(self) -> bool:
        """Whether the turn answers calls and says nothing else."""
        return bool(self.blocks) and all(block.type == "tool_result" for block in self.blocks)


class ClaudeRequest(msgspec.Struct, frozen=True):
    """A parsed request. ``turns`` leave system messages out."""

    body: Mapping[str, Any]
    model: ClaudeModel
    rows: tuple[ClaudeMessage, ...]
    turns: tuple[MergedMessage, ...]

    @property
    def thinking(self) -> Mapping[str, Any]:
        """The thinking configuration; empty without one."""
        asked = self.body.get("thinking")
        return asked if isinstance(asked, Mapping) else {}

    def blocks(self) -> Iterator[tuple[ClaudeMessage, ClaudeBlock]]:
        """Every block with its message."""
        for row in self.rows:
            for block in row.blocks:
                yield row, block

    def loops(self) -> list[list[MergedMessage]]:
        """Turns from one of a person to the next: an answer with all its tool rounds.

        A turn that only answers calls belongs to the loop of the calls.
        """
        loops: list[list[MergedMessage]] = []
        for turn in self.turns:
            begins = turn.role == "user" and not turn.of_type("tool_result")
            if begins or not loops:
                loops.append([])
            loops[-1].append(turn)
        return loops


def read_claude_request(body: Mapping[str, Any]) -> ClaudeRequest:
    """Parse a request; what has no form that a rule can speak of is left out of the blocks."""
    sent = body.get("messages")
    rows = tuple(
        _row(number, message)
        for number, message in enumerate(sent if isinstance(sent, list) else ())
        if isinstance(message, Mapping)
    )
    turns: list[MergedMessage] = []
    for row in rows:
        if row.role not in ("user", "assistant"):
            continue
        if turns and turns[-1].role == row.role:
            merged = turns[-1].blocks + row.blocks
            turns[-1] = msgspec.structs.replace(turns[-1], blocks=merged)
        else:
            turns.append(MergedMessage(row.number, row.role, row.blocks))
    return ClaudeRequest(body, read_model(body.get("model")), rows, tuple(turns))


def blocks_of(content: object, path: str) -> tuple[ClaudeBlock, ...]:
    """The blocks of a content that is a text or a list."""
    if isinstance(content, str):
        return (ClaudeBlock(path, "text", {"type": "text", "text": content}),) if content else ()
    if not isinstance(content, list):
        return ()
    return tuple(
        ClaudeBlock(f"{path}.{place}", str(block.get("type")), block)
        for place, block in enumerate(content)
        if isinstance(block, Mapping)
    )


def _row(number: int, message: Mapping[str, Any]) -> ClaudeMessage:
    content = message.get("content")
    blocks = blocks_of(content, f"messages.{number}.content")
    return ClaudeMessage(number, str(message.get("role")), content, blocks, message)
