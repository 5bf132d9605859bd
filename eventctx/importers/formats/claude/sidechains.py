"""Subagents whose lines are in the file of their main session, as releases 1.x wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from eventctx.importers.formats.claude.rows import ClaudeRow, decode_row
from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import read_lines
from eventctx.importers.source.values import BROKEN

_MARKED: Final = re.compile(rb'"isSidechain"\s*:\s*true')
_SPOKEN: Final = re.compile(rb'"type"\s*:\s*"(?:user|assistant)"')


class Sidechains:
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


def marked(lines: Iterable[FileLine]) -> Iterator[FileLine]:
    """The lines of subagents."""
    return (line for line in lines if _MARKED.search(line.data))


def agents_in(path: Path) -> list[str]:
    """The subagents in the file of a main session, in their order; none in a subagent's file."""
    if not path.exists():  # a file that was followed may be gone by now
        return []
    found: dict[str, None] = {}
    chains = Sidechains()
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
