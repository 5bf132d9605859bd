"""The order of a Claude Code file's lines, where a line was written before the one it follows.

The program writes its lines at once, not in turn, so the result of a quick tool may come before its
call. Such a line waits here for the line that it follows, for a few lines at most; a parent that
was never written changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from eventctx.importers.formats.claude.rows import ClaudeRow
from eventctx.importers.source.values import BROKEN

WINDOW: Final = 16
"""Lines for which one waits. In recorded files it is one or two."""


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    tool_use_id: str | None = None


class _Message(msgspec.Struct):
    content: list[_Block]


_decode_message: Final = msgspec.json.Decoder(_Message).decode


class WaitingRow(NamedTuple):
    """A line and its number; a line that waited has that of the line which it follows."""

    line: int
    data: bytes
    row: ClaudeRow


class _Waits(NamedTuple):
    """The end of the waiting: a line of this name, or one with a call of these."""

    uuid: object
    calls: frozenset[str]


class LineOrder:
    """Rows in the order of the conversation. ``knows`` tells which names were taken before."""

    def __init__(self, knows: Callable[[object], bool]) -> None:
        self._knows = knows
        self._calls: set[int] = set()
        self._answers = False
        self._held: list[WaitingRow] = []
        self._waits = _Waits(None, frozenset())

    @property
    def first(self) -> WaitingRow | None:
        """The row that waits."""
        return self._held[0] if self._held else None

    def take(self, new: WaitingRow) -> list[WaitingRow]:
        """The rows that ``new`` completes, each to be taken before the next is asked for."""
        if not self._held:
            waits = self._waits_of(new.row)
            if waits is None:
                return [new]
            self._held, self._waits = [new], waits
            return []
        self._held.append(new)
        calls, _ = _calls_and_results(new.row)
        if self._waits.calls & set(calls) or _is(new.row.uuid, self._waits.uuid):
            first = self._held[0]._replace(line=new.line)
            return self._released([*self._held[1:], first])
        return self._released(self._held) if len(self._held) > WINDOW else []

    def rest(self) -> list[WaitingRow]:
        """The rows that still wait, in file order; none waits any more."""
        return self._released(self._held)

    def _released(self, rows: list[WaitingRow]) -> list[WaitingRow]:
        self._held = []
        for one in rows:
            self._note(one.row)
        return rows

    def _note(self, row: ClaudeRow) -> None:
        calls, _ = _calls_and_results(row)
        self._calls.update(map(hash, calls))
        self._answers = self._answers or row.type == "assistant"

    def _waits_of(self, row: ClaudeRow) -> _Waits | None:
        """The lines that a row waits for; None for one that follows what came before."""
        if row.type not in ("user", "assistant") or self._knows(row.uuid):
            return None
        calls, results = _calls_and_results(row)
        if row.type == "assistant":
            parent = row.parentUuid
            if self._answers and isinstance(parent, str) and not self._knows(parent):
                return _Waits(parent, frozenset())
        elif self._answers:
            missing = frozenset(one for one in results if hash(one) not in self._calls)
            if missing:
                return _Waits(None, missing)
        self._calls.update(map(hash, calls))
        self._answers = self._answers or row.type == "assistant"
        return None


def _is(uuid: object, wanted: object) -> bool:
    return isinstance(wanted, str) and uuid == wanted


def _calls_and_results(row: ClaudeRow) -> tuple[list[str], list[str]]:
    """The ids of the calls in a row's message, and of the calls that it answers."""
    data = bytes(row.message)
    if b'"tool_' not in data:
        return [], []
    try:
        content = _decode_message(data).content
    except BROKEN:
        return [], []
    calls = [one.id for one in content if one.type == "tool_use" and one.id]
    results = [one.tool_use_id for one in content if one.type == "tool_result" and one.tool_use_id]
    return calls, results
