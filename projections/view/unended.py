"""Spans that have begun and not ended, as a fold: a killed process leaves them open.

The next process to begin a turn ends them as ``lost``. A fork begins with none, since
the spans that were open at the fork are its parent's, and so does a session that was taken over
from a file, whose program keeps its own account.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.codec import decode_event
from eventctx.log.events import PlanStart, PromptSubmit, ToolError, ToolPost, ToolPre
from eventctx.log.ids import RecordIds
from eventctx.log.record import Record
from eventctx.log.turn_recorder import LOST, ModelRequest, Operation, SpanRecord, end_of

MAX_UNENDED: Final = 64
"""Most of them that a state holds. Beyond that the oldest is forgotten and gets no end, but a turn
only when all are turns: lists and traces of turns need the end of a turn."""


class UnendedSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A span without an end. ``type`` is that of the record that began it.

    ``name`` and ``call_id`` are those of a tool call.
    """

    type: str
    turn_id: str | None
    span_id: str
    parent_span_id: str | None
    iteration: int | None
    name: str = ""
    call_id: str | None = None


Unended = tuple[UnendedSpan, ...]


def presumed_end(span: UnendedSpan) -> SpanRecord:
    """The end of a span that its process left open; no more is known of it."""
    operation: Operation
    match span.type:
        case "prompt:submit":
            operation = PromptSubmit(number=0)
        case "plan:start":
            operation = PlanStart()
        case "provider:request":
            operation = ModelRequest()
        case _:
            operation = ToolPre(name=span.name, call_id=span.call_id)
    ids = RecordIds(span.turn_id, span.span_id, span.parent_span_id, span.iteration)
    return SpanRecord(end_of(operation, LOST), ids)


def with_begun(spans: Unended, record: Record) -> Unended:
    """The spans with the one that ``record`` begins, the newest last."""
    if record.span_id is None:
        return spans
    name, call_id = "", None
    if record.type == "tool:pre":
        event = tool_event(record)
        if event is None:
            return spans  # without its name no end can be written
        name, call_id = event.name, event.call_id
    ids = (record.turn_id, record.span_id, record.parent_span_id, record.iteration)
    grown = (*spans, UnendedSpan(record.type, *ids, name, call_id))
    return grown if len(grown) <= MAX_UNENDED else _without_oldest(grown)


def _without_oldest(spans: Unended) -> Unended:
    calls = (place for place, one in enumerate(spans) if one.type != "prompt:submit")
    oldest = next(calls, 0)
    return spans[:oldest] + spans[oldest + 1 :]


def tool_event(record: Record) -> ToolPre | ToolPost | ToolError | None:
    """The event of a tool call's record; None if it cannot be read.

    A view does without it: unlike a context event it only changes the words of a made-up result.
    """
    try:
        event = decode_event(record)
    except DecodeError:
        return None
    return event if isinstance(event, ToolPre | ToolPost | ToolError) else None


def without_ended(spans: Unended, record: Record) -> Unended:
    """The spans without the one that ``record`` ends."""
    if not any(one.span_id == record.span_id for one in spans):
        return spans
    return tuple([one for one in spans if one.span_id != record.span_id])
