"""The trace of each record: a small fold that log lines and spans share.

A turn's records belong to the trace that ``prompt:submit`` names, or to the one derived from
session and turn. Outside a turn, the trace id is derived from the operation at the root: a record
without a parent is a root, and a record with a parent belongs to its parent's trace. A record that
stands in no turn and in no operation, such as ``session:start``, is in no trace.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.log.codec import Unknown
from eventctx.log.events import Event, PromptSubmit
from eventctx.log.ids import derive_trace_id, is_trace_id
from eventctx.log.record import Record
from eventctx.projections.trace.attributes import OPENS

MAX_REMEMBERED: Final = 64
"""Most turns with an ambient trace, and most spans outside turns, kept for one session."""


class TraceIds(msgspec.Struct, frozen=True):
    """The trace ids of a session that cannot be derived from a later record's own ids.

    ``turns`` are pairs ``(turn id, ambient trace id)``; ``outside`` are pairs ``(span id, trace
    id)`` of spans outside turns. Both have the newest last.
    """

    turns: tuple[tuple[str, str], ...] = ()
    outside: tuple[tuple[str, str], ...] = ()


def needs(record: Record) -> bool:
    """Whether this record can change the state of ``locate``."""
    return record.type == "prompt:submit" or (record.turn_id is None and record.type in OPENS)


def locate(ids: TraceIds, record: Record, event: Event | Unknown) -> tuple[TraceIds, str]:
    """Return the state after ``record``, and the id (32 hex digits) of the trace of its span.

    Whether there is such a span, ``has_trace`` tells.
    """
    turn_id = record.turn_id
    if turn_id is not None:
        if isinstance(event, PromptSubmit) and event.trace_id and is_trace_id(event.trace_id):
            turns = (*ids.turns[1 - MAX_REMEMBERED :], (turn_id, event.trace_id))
            return TraceIds(turns, ids.outside), event.trace_id
        for turn, trace_id in reversed(ids.turns):
            if turn == turn_id:
                return ids, trace_id
        return ids, derive_trace_id(record.stream, turn_id)
    span_id, parent = record.span_id, record.parent_span_id
    known = dict(ids.outside)
    if span_id is not None and span_id in known:
        return ids, known[span_id]
    root = parent or span_id or record.id.hex()
    trace_id = known.get(root) or derive_trace_id(record.stream, root)
    if span_id is not None and record.type in OPENS:
        outside = (*ids.outside[1 - MAX_REMEMBERED :], (span_id, trace_id))
        ids = TraceIds(ids.turns, outside)
    return ids, trace_id


def has_trace(ids: TraceIds, record: Record) -> bool:
    """Whether ``record`` stands in a turn or in an operation; ``ids`` are those after it."""
    if record.turn_id is not None or record.type in OPENS:
        return True
    return any(span_id in (record.span_id, record.parent_span_id) for span_id, _ in ids.outside)
