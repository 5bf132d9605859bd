"""Rows and blocks as the rules read them: by themselves, whatever the dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

Row = dict[str, Any]
Block = dict[str, Any]
Rows = list[Row | None]
"""The rows of a view, one place for each entry; None for one that is left out."""

THINKING: Final = frozenset(("thinking", "redacted_thinking"))
SERVER_CALLS: Final = frozenset(("server_tool_use", "mcp_tool_use"))
CALLS: Final = frozenset(("tool_use", "tool_call"))


class RowChange(msgspec.Struct, frozen=True):
    """A row at ``place`` that is not sent as the log has it, by the rule of that name.

    ``detail`` are ids of calls or items, or sizes, where the rule is about such.
    """

    place: int
    rule: str
    detail: tuple[str, ...] = ()


class SendingRule(NamedTuple):
    """A rule of providers: ``apply`` replaces rows in the list that break it, none in itself.

    ``concerns`` tells by the kinds of a view (``kinds_in``) whether the rule can be broken at all.
    """

    name: str
    words: str
    apply: Callable[[Rows], list[RowChange]]
    concerns: Callable[[set[str]], bool]


def any_of(*kinds: str) -> Callable[[set[str]], bool]:
    """Concerns views with a block, item or field of one of these kinds."""
    wanted = frozenset(kinds)
    return lambda found: not wanted.isdisjoint(found)


def kinds_in(rows: Iterable[Row]) -> set[str]:
    """The types of all blocks and items, the roles, and ``tool_calls`` where a row has some."""
    found: set[str] = set()
    for row in rows:
        role, content = row.get("role"), row.get("content")
        if isinstance(content, list):
            found.update([kind_of(block) for block in content])
        if role is None:
            found.add(kind_of(row))
        if "tool_calls" in row:
            found.add("tool_calls")
    return found


def blocks_of(row: Row) -> list[Any]:
    """The blocks of a row's content; none where it is a text."""
    content = row.get("content")
    return content if isinstance(content, list) else []


def kind_of(block: Any) -> str:
    """The type of a block or an item; empty where it has none."""
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def id_of(block: Any) -> str:
    """The id of a block or a call; empty where it has none."""
    found = block.get("id") if isinstance(block, dict) else None
    return found if isinstance(found, str) else ""


def is_server_result(kind: str) -> bool:
    """Whether a block of this type is the result of a provider's own tool."""
    return kind.endswith("_tool_result")


def has_calls(row: Row) -> bool:
    """Whether a row has calls outside of its content."""
    return bool(row.get("tool_calls") or row.get("function_call"))


def is_conversation(row: Row) -> bool:
    """Whether a row is no system message."""
    return row.get("role") not in ("system", "developer")


def with_content(row: Row, content: Any) -> Row:
    """The row with another content."""
    return {**row, "content": content}


def is_only_results(row: Row) -> bool:
    """Whether a row holds tools' results and nothing else."""
    found = blocks_of(row)
    return bool(found) and all(kind_of(block) == "tool_result" for block in found)


def runs(rows: Rows, role: str) -> Iterator[list[int]]:
    """The places of neighbouring rows of ``role``, which Anthropic's API takes for one message."""
    run: list[int] = []
    for place, row in enumerate(rows):
        if row is None:
            continue
        if row.get("role") == role:
            run.append(place)
        elif run:
            yield run
            run = []
    if run:
        yield run
