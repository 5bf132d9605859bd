"""The spans of a session's tool calls, so that a session that a call started can link to it."""

from __future__ import annotations

from typing import Final

from eventctx.log.events import PostCompact, PromptSubmit, ToolPre
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.trace.ids import TraceIds, locate

_TYPES: Final = frozenset(("prompt:submit", "tool:pre", "context:post_compact"))

SpanIds = tuple[str, str]
"""A span's trace id and span id, in lowercase hex."""


class CallSpans:
    """What a session's records say of the spans of its tool calls and compactions.

    The records may begin anywhere; a call in a turn whose beginning is not among them is unknown.
    """

    def __init__(self) -> None:
        self.calls: dict[str, SpanIds] = {}
        """By call id; of two calls with one id, the later one's."""
        self.compactions: list[SpanIds] = []
        self._ids = TraceIds()
        self._turns: set[str | None] = {None}

    def see(self, record: Record) -> None:
        """Take the next record."""
        if record.type not in _TYPES:
            return
        event = read(record)
        self._ids, trace_id = locate(self._ids, record, event)
        if isinstance(event, PromptSubmit):
            self._turns.add(record.turn_id)
        if record.span_id is None or record.turn_id not in self._turns:
            return
        if isinstance(event, ToolPre) and event.call_id is not None:
            self.calls[event.call_id] = (trace_id, record.span_id)
        elif isinstance(event, PostCompact) and event.outcome == "applied":
            self.compactions.append((trace_id, record.span_id))
