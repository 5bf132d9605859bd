"""GitHub Copilot CLI's events: a JSON object a line, appended while the session runs.

The program makes its chat of them when it resumes a session, and this module does the same: the
messages are those that it sends, in the form of OpenAI's chat. What the events do not hold, such as
the text of attached files, is not in them (docs/explanation/limits.md). Events of a subagent stand
between those of the main session; each subagent is a further session of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from eventctx.importers.formats.copilot_chat import Agents
from eventctx.importers.formats.copilot_events import FAMILIES, CopilotConversation
from eventctx.importers.source.items import Ended, FileLine, Item, Parser, never
from eventctx.importers.source.lines import parse_rows, read_lines
from eventctx.importers.source.values import BROKEN, decode

_SPEAKS: Final = re.compile(rb'"(?:assistant\.message|subagent\.started)"')


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is an event of a session."""
    kind = value.get("type")
    if not isinstance(kind, str) or kind.partition(".")[0] not in FAMILIES:
        return False
    return isinstance(value.get("data"), dict) and "id" in value and "timestamp" in value


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of the main session. ``name`` is used where no event names the session."""
    return _items_of(lines, CopilotConversation(name), ended)


def others(path: Path) -> list[Parser]:
    """A parser for each subagent whose events are in the file."""
    return [_of_agent(agent) for agent in _agents_in(path)]


def _of_agent(agent: str) -> Parser:
    def parse_one(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
        return _items_of(lines, CopilotConversation(name, agent), ended)

    return parse_one


def _items_of(
    lines: Iterable[FileLine], conversation: CopilotConversation, ended: Ended
) -> Iterator[Item]:
    return parse_rows(lines, decode, conversation.row, conversation.end(ended))


def _agents_in(path: Path) -> list[str]:
    """The subagents that speak in a file, in their order."""
    if not path.exists():  # a file that was followed may be gone by now
        return []
    found: dict[str, None] = {}
    agents = Agents()
    for line in read_lines(path):
        if not _SPEAKS.search(line.data):
            continue
        try:
            row = decode(line.data)
        except BROKEN:
            continue
        agent = agents.of(row) if isinstance(row, dict) else None
        if agent is not None and row.get("type") == "assistant.message":
            found[agent] = None
    return list(found)
