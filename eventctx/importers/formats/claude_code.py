"""Claude Code's JSONL: one line per content block, results between the blocks, 70 % progress.

No byte is lost: a line that the model never sees is yielded as ``Raw``, and so is a line that
became a message, with ``"message":null``. There the second copy of each result (``toolUseResult``)
is kept. File order is the order of the transcript, but for a line that waited for the one that it
follows (``claude/waiting.py``). Where it is sound, the ``parentUuid`` graph says what was taken
back (``claude/route.py``). A line whose ``uuid`` came before is kept, and is no second message
unless a person says something new in it.

Subagents have files of their own. Releases 1.x wrote their lines into the file of the main session,
marked ``isSidechain``; each of these is a further session of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from eventctx.importers.formats.claude.conversation import ClaudeConversation
from eventctx.importers.formats.claude.rows import ClaudeRow, decode_row
from eventctx.importers.formats.google import qwen
from eventctx.importers.source.items import Ended, FileLine, Item, Parser, never
from eventctx.importers.source.lines import parse_rows, read_lines
from eventctx.importers.source.values import BROKEN

_MARKED: Final = re.compile(rb'"isSidechain"\s*:\s*true')
_SPOKEN: Final = re.compile(rb'"type"\s*:\s*"(?:user|assistant)"')


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one session file. ``name`` is used where no line gives a session id."""
    conversation = ClaudeConversation(name)
    return _items_of(lines, conversation, conversation.row, ended)


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of a session."""
    # Qwen Code's records have the same keys, and parts in place of content.
    if not isinstance(value.get("type"), str) or qwen.is_row(value):
        return False
    if "sessionId" in value and ("uuid" in value or "operation" in value or "message" in value):
        return True
    return ("leafUuid" in value and "summary" in value) or (
        "messageId" in value and "snapshot" in value
    )


def others(path: Path) -> list[Parser]:
    """A parser for each subagent whose lines are in the main session's file."""
    return [_sidechain(agent) for agent in _agents_in(path)]


def _sidechain(agent: str) -> Parser:
    def parse_one(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
        conversation, chains = ClaudeConversation(name, agent), _Sidechains()

        def row(line: int, data: bytes, one: ClaudeRow) -> Iterable[Item]:
            return conversation.row(line, data, one) if chains.agent_of(one) == agent else ()

        return _items_of(_select_marked(lines), conversation, row, ended)

    return parse_one


def _items_of(
    lines: Iterable[FileLine],
    conversation: ClaudeConversation,
    row: Callable[[int, bytes, ClaudeRow], Iterable[Item]],
    ended: Ended,
) -> Iterator[Item]:
    try:
        yield from parse_rows(lines, decode_row, row, conversation.end(ended))
    finally:
        conversation.results.close()


# -- subagents in the file of a main session -----------------------------------------------------


class _Sidechains:
    """Which subagent a line belongs to: the one that it names, or that of the line it follows.

    A line without a parent begins a subagent, which is named after it.
    """

    def __init__(self) -> None:
        self._agents: dict[str, str] = {}
        self._last: str | None = None

    def agent_of(self, row: ClaudeRow) -> str | None:
        """The subagent's name; None for a line of the main session."""
        if not row.isSidechain:
            return None
        agent = row.agentId
        if agent is None and isinstance(row.parentUuid, str):
            agent = self._agents.get(row.parentUuid, self._last)
        if agent is None:
            agent = row.uuid if isinstance(row.uuid, str) else self._last or "sidechain"
        if isinstance(row.uuid, str):
            agent = self._agents.setdefault(row.uuid, agent)
        self._last = agent
        return agent


def _select_marked(lines: Iterable[FileLine]) -> Iterator[FileLine]:
    """The lines of subagents."""
    return (line for line in lines if _MARKED.search(line.data))


def _agents_in(path: Path) -> list[str]:
    """The subagents in the file of a main session, in their order; none in a subagent's file."""
    if not path.exists():  # a file that was followed may be gone by now
        return []
    found: dict[str, None] = {}
    chains = _Sidechains()
    main = False
    for line in read_lines(path):
        if not _MARKED.search(line.data):
            main = main or _SPOKEN.search(line.data) is not None
            continue
        try:
            row = decode_row(line.data)
        except BROKEN:
            continue
        if row.type in ("user", "assistant"):
            if not main:
                return []
            agent = chains.agent_of(row)
            found.update({agent: None} if agent else {})
    return list(found)
