"""The parent of each span: that of its record, but tools hang beside the model call that asked.

In the log the parent of a tool call is the model call that asked for it. That call has ended when
the tool begins, and tools that read spans take a child that begins after its parent's end for a
mistake: Jaeger leaves it out of the critical path and the flame graph, and suspects a wrong clock.
So a tool's span gets the parent of that model call, and the log's parent becomes an attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventctx.log.record import Record
from eventctx.projections.trace.spans import OpenSpan

MAX_REMEMBERED: Final = 64
"""Most model calls whose tools may still begin, kept for one session; the oldest goes first."""

Calls = tuple[tuple[str, str | None], ...]
"""Pairs ``(span id, parent span id)`` of model calls, the newest last."""


def remember(calls: Calls, record: Record) -> Calls:
    """``calls`` with the model call that ``record`` begins."""
    if record.span_id is None:
        return calls
    return (*calls[1 - MAX_REMEMBERED :], (record.span_id, record.parent_span_id))


def of_tool(
    calls: Calls, record: Record, spans: Mapping[str, OpenSpan], turn: OpenSpan | None
) -> str | None:
    """The parent of the tool's span that ``record`` begins; ``spans`` are the open ones, by id.

    It is the parent of the model call that the record names: none if that call is outside a turn,
    so that both are at the top of their trace. If the record names no call that is known, it is
    the span that it names while that is open, and else the turn's.
    """
    named = record.parent_span_id
    for call, parent in reversed(calls):
        if call == named:
            return parent
    if named is None or named in spans or turn is None:
        return named
    return turn.span_id
