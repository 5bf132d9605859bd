"""Tapes: what ``eventctx record`` saw on its way between a program and its model, one call a line.

The first line names the session. Each further one is a call: when it began and ended, its body and
the answer's, both as JSON or, where that was streamed, as text. A request repeats most of the one
before it, so it refers to that one (``as_written``). Headers that name the session, the agent and
the turn are kept, and no others: no key is ever written.

A program makes calls outside its conversation, such as for a title. Those become sessions of their
own. A request with the conversation's tools that does not continue it was written anew by the
program: that is a compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from eventctx.importers.formats.amplifier_requests import RequestHistory
from eventctx.importers.formats.cassettes.cassette import model_request
from eventctx.importers.formats.cassettes.conversation import (
    CassetteRequest,
    RecordedConversation,
    RecordedConversations,
)
from eventctx.importers.source.http_recording import Exchange
from eventctx.importers.source.items import Ended, FileLine, Item, Parser, Raw, never
from eventctx.importers.source.lines import (
    list_or_empty,
    not_understood,
    object_or_empty,
    parse_rows,
    read_lines,
    text_or_none,
)
from eventctx.importers.source.values import BROKEN, decode

VERSION: Final = 1
KEPT_HEADERS: Final = (
    "user-agent",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "x-claude-code-prompt-id",
    "session-id",
    "session_id",
    "conversation_id",
    "thread-id",
    "x-codex-turn-metadata",
)
"""The headers of a request that a tape holds."""

_OF_CONVERSATION: Final = frozenset(("turn", "compact", "compaction"))
"""Codex's names for the requests of its conversation."""


def header_line(session: str, agent: str | None, parent: str | None) -> dict[str, Any]:
    """The first line of a tape."""
    return {"eventctx_tape": VERSION, "session": session, "agent": agent, "parent": parent}


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is the first line of a tape."""
    return "eventctx_tape" in value


def as_written(history: RequestHistory, line: int, sent: object) -> object:
    """A request's body as line ``line`` holds it: with references to the one before it."""
    return history.rest(line, sent) if isinstance(sent, dict) else sent


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of the conversation; what a program asked outside it is in ``others``."""
    reader = _Reader(main_alone=True)
    return parse_rows(lines, decode, reader.main_items, ())


def others(path: Path) -> list[Parser]:
    """A parser for each conversation that a program had besides the main one."""
    reader = _Reader()
    for _ in parse_rows(read_lines(path), decode, reader.main_items, ()):
        pass
    return [
        _parser_of([conversation.opening, *conversation.items])
        for conversation in reader.beside.all
    ]


def _parser_of(items: list[Item]) -> Parser:
    return lambda lines, name, ended: iter(items)


class _Reader:
    """Reads a tape line by line. ``beside`` are the conversations besides the main one.

    With ``main_alone`` their calls are passed over.
    """

    def __init__(self, *, main_alone: bool = False) -> None:
        self._main_alone = main_alone
        self.beside = RecordedConversations()
        self._about: dict[str, Any] = {}
        self._main: RecordedConversation | None = None
        self._tools: set[tuple[str, ...]] = set()
        self._last: dict[str, Any] = {}

    def main_items(self, line: int, data: bytes, row: Any) -> Iterable[Item]:
        """The items of a line of the main conversation."""
        if not isinstance(row, dict):
            return not_understood(line, "line", data, "expected an object of a tape")
        if is_row(row):
            if row["eventctx_tape"] != VERSION:
                return not_understood(line, "tape", data, "a tape of a later release of eventctx")
            self._about = row
            return [Raw(line, "tape", data)]
        request = model_request(self._exchange(line, row))
        if request is None:
            return not_understood(line, "call", data, "no request to a model that is known")
        return self._take(request)

    def _take(self, request: CassetteRequest) -> list[Item]:
        tools = _tool_names(request.sent)
        beside = _is_beside(request, tools)
        main = self._main
        if main is not None and main.continued_by(request):
            main.take(request)
        elif (
            main is not None
            and not beside
            and tools in self._tools
            and (tools or main.shares(request))
        ):
            main.take(request, compacted=True)
        elif main is None and not beside:
            main = self._main = RecordedConversation(self._name, request, on_tape=True)
            main.opening = msgspec.structs.replace(
                main.opening,
                agent=text_or_none(self._about.get("agent")),
                parent=text_or_none(self._about.get("parent")),
            )
            main.take(request)
        else:
            if not self._main_alone:
                self._take_beside(request)
            return []
        self._tools.add(tools)
        items, main.items = main.items, []
        return [main.opening, *items] if main.number == request.exchange.number else items

    def _take_beside(self, request: CassetteRequest) -> None:
        def begin(number: int, request: CassetteRequest) -> RecordedConversation:
            conversation = RecordedConversation(f"{self._name}-{number + 2}", request, on_tape=True)
            conversation.opening = msgspec.structs.replace(conversation.opening, parent=self._name)
            return conversation

        self.beside.take(request, begin)

    @property
    def _name(self) -> str:
        return text_or_none(self._about.get("session")) or "tape"

    def _exchange(self, line: int, row: dict[str, Any]) -> Exchange:
        sent = self._whole(row.get("sent"))
        status, began, ended = (row.get(key) for key in ("status", "began", "ended"))
        beside = ("sent", "answered")
        return Exchange(
            line,
            text_or_none(row.get("method")) or "POST",
            text_or_none(row.get("host")) or "",
            text_or_none(row.get("path")) or "",
            sent,
            status if isinstance(status, int) else 0,
            row.get("answered"),
            ended if isinstance(ended, int) else None,
            {key: value for key, value in row.items() if key not in beside},
            began if isinstance(began, int) else None,
        )

    def _whole(self, written: object) -> object:
        """A request's body without references."""
        if not isinstance(written, dict):
            return written
        found: dict[str, Any] = {}
        for key, value in written.items():
            refers = isinstance(value, dict) and "same_as_line" in value
            if not refers:
                found[key] = value
            elif "then" in value:
                before = list_or_empty(self._last.get(key))
                found[key] = [*before[: value["first"]], *list_or_empty(value["then"])]
            else:
                found[key] = self._last.get(key)
        self._last = found
        return found


def _tool_names(sent: dict[str, Any]) -> tuple[str, ...]:
    tools = [object_or_empty(one) for one in list_or_empty(sent.get("tools"))]
    names = [one.get("name", object_or_empty(one.get("function")).get("name")) for one in tools]
    return tuple(sorted({str(name) for name in names}))


def _is_beside(request: CassetteRequest, tools: tuple[str, ...]) -> bool:
    """Whether a program says of a call that it is not one of its conversation."""
    headers = object_or_empty(request.exchange.rest.get("headers"))
    try:
        turn = object_or_empty(decode(str(headers.get("x-codex-turn-metadata", "")).encode()))
    except BROKEN:
        turn = {}
    kind = text_or_none(turn.get("request_kind"))
    if kind is not None:
        return kind not in _OF_CONVERSATION
    # Claude Code's conversation always has tools.
    return not tools and str(headers.get("user-agent", "")).startswith("claude-cli")
