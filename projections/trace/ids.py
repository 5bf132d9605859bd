"""The trace of each record: a small fold that log lines and spans share.

A turn's records belong to the trace that ``prompt:submit`` names, or to the one derived from
session and turn. Outside a turn, the trace id is derived from the operation at the root: a record
without a parent is a root, and a record with a parent belongs to its parent's trace.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.log.codec import Unknown
from eventctx.log.events import Event, PromptSubmit
from eventctx.log.ids import derive_trace_id, is_trace_id
from eventctx.log.record import Record

MAX_REMEMBERED: Final = 64
"""Most turns with an ambient trace, and most nested spans outside turns, kept for one session."""


class TraceIds(msgspec.Struct, frozen=True):
    """The trace ids of a session that cannot be derived from a later record's own ids.

    ``turns`` are pairs ``(turn id, ambient trace id)``; ``nested`` are pairs ``(span id, trace
    id)`` of spans outside turns that have a parent. Both have the newest last.
    """

    turns: tuple[tuple[str, str], ...] = ()
    nested: tuple[tuple[str, str], ...] = ()


def needs(record: Record) -> bool:
    """Whether this record can change the state of ``locate``."""
    return record.type == "prompt:submit" or (
        record.turn_id is None and record.parent_span_id is not None
    )


def locate(ids: TraceIds, record: Record, event: Event | Unknown) -> tuple[TraceIds, str]:
    """Return the state after ``record``, and the id of its trace (32 hex digits)."""
    turn_id = record.turn_id
    if turn_id is not None:
        if isinstance(event, PromptSubmit) and event.trace_id and is_trace_id(event.trace_id):
            turns = (*ids.turns[1 - MAX_REMEMBERED :], (turn_id, event.trace_id))
            return TraceIds(turns, ids.nested), event.trace_id
        for turn, trace_id in reversed(ids.turns):
            if turn == turn_id:
                return ids, trace_id
        return ids, derive_trace_id(record.stream, turn_id)
    span_id, parent = record.span_id, record.parent_span_id
    if parent is None:
        return ids, derive_trace_id(record.stream, span_id or record.id.hex())
    known = dict(ids.nested)
    if span_id is not None and span_id in known:
        return ids, known[span_id]
    trace_id = known.get(parent) or derive_trace_id(record.stream, parent)
    if span_id is not None:
        nested = (*ids.nested[1 - MAX_REMEMBERED :], (span_id, trace_id))
        ids = TraceIds(ids.turns, nested)
    return ids, trace_id
