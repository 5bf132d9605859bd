"""Which trace a record belongs to: a small fold that log lines and spans share.

A turn's records belong to the trace that ``prompt:submit`` names, or to the one derived from
session and turn. Outside a turn the operation at the root names the trace: a record without a
parent is a root itself, and a record with a parent belongs where its parent does.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.log.codec import Unknown
from eventctx.log.events import Event, PromptSubmit
from eventctx.log.ids import derive_trace_id, is_trace_id
from eventctx.log.record import Record

MAX_REMEMBERED: Final = 64
"""Turns with an ambient trace, and nested spans outside turns, that one session remembers."""


class TraceIds(msgspec.Struct, frozen=True):
    """What a session's later records need: only what does not follow from their own ids.

    ``turns`` are ``(turn id, ambient trace id)``, ``nested`` ``(span id, trace id)`` of spans
    outside turns that have a parent; newest last.
    """

    turns: tuple[tuple[str, str], ...] = ()
    nested: tuple[tuple[str, str], ...] = ()


def needs(record: Record) -> bool:
    """Whether ``locate`` may learn something from this record."""
    return record.type == "prompt:submit" or (
        record.turn_id is None and record.parent_span_id is not None
    )


def locate(ids: TraceIds, record: Record, event: Event | Unknown) -> tuple[TraceIds, str]:
    """Return what is known after ``record``, and the id of its trace (32 hex digits)."""
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
