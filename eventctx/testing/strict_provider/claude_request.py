"""A request of Anthropic's Messages API as its rules speak of it: model, rows, turns and loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_NAME: Final = re.compile(
    r"claude-(?:(?P<old>\d(?:[-.]\d)?)-)?(?P<family>opus|sonnet|haiku|fable|mythos)"
    r"(?:-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?)?(?!\d)"
)


class ClaudeModel(msgspec.Struct, frozen=True):
    """A model's family and version; ``version`` is empty where its name does not say it."""

    family: str = ""
    version: tuple[int, ...] = ()

    @property
    def thinks_manually(self) -> bool:
        """Whether ``thinking: enabled`` binds the tool loop (Claude 3.7 to 4.5, and unknown)."""
        return not self.version or (3, 7) <= self.version < (4, 6)

    @property
    def refuses_enabled(self) -> bool:
        """Whether only adaptive thinking is taken."""
        return self.version >= (4, 7)

    @property
    def preserves_thinking(self) -> bool:
        """Whether thinking that is sent back gets a prefix check."""
        since = (5, 1) if self.family in ("fable", "mythos") else (5, 5)
        return self.version >= since

    @property
    def compacts(self) -> bool:
        """Whether the API compacts for it, and it reads the block."""
        return self.version >= ((5, 5) if self.family == "haiku" else (4, 6))

    @property
    def takes_prefill(self) -> bool:
        """Whether a request may end with an assistant message."""
        return self.version < (4, 6)

    @property
    def takes_system_messages(self) -> bool:
        """Whether ``system`` may be a role in the middle of a conversation."""
        if not self.version:
            return True
        return self.version >= (4, 8) and (self.family, self.version) != ("sonnet", (5, 0))


def read_model(name: object) -> ClaudeModel:
    """The model of a name, with any prefix and date; an empty one where it is no Claude."""
    found = _NAME.search(name) if isinstance(name, str) else None
    if found is None:
        return ClaudeModel()
    if found["old"]:
        return ClaudeModel(found["family"], _version(*re.split(r"[-.]", found["old"])))
    if not found["major"]:
        return ClaudeModel(found["family"])
    return ClaudeModel(found["family"], _version(found["major"], found["minor"]))


def _version(major: str, minor: str | None = None) -> tuple[int, ...]:
    return int(major), int(minor or 0)


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
