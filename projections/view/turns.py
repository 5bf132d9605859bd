"""Steps of the fold: whose session it is; turns, model calls and tools begin and end."""

from __future__ import annotations

from typing import Any

from eventctx.log import events
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.projections.view import layout as layouts
from eventctx.projections.view import unended
from eventctx.projections.view.call_ends import end_in
from eventctx.projections.view.state import ViewState


def started(state: ViewState, record: Record) -> ViewState:
    """An imported session mirrors its file."""
    event: Any = decode_known(record)
    return state._replace(mirror=None if event.imported_at is None else event.source or "a file")


def ours(state: ViewState, record: Record) -> ViewState:
    """The session takes no more records from a file."""
    # A fork reads through its parent's records; its own first record makes it no mirror. What was
    # open before belongs to the parent, or to the program that wrote the file.
    return state._replace(mirror=None, spans=())


def submitted(state: ViewState, record: Record) -> ViewState:
    """A turn begins."""
    event: Any = decode_known(record)
    return began(state._replace(turns=max(state.turns, event.number)), record)


def began(state: ViewState, record: Record) -> ViewState:
    """A span is open."""
    return state._replace(position=record.position, spans=unended.begun(state.spans, record))


def ended(state: ViewState, record: Record) -> ViewState:
    """A span is closed, if it was open."""
    spans = unended.ended(state.spans, record)
    if spans is state.spans:
        return state
    return state._replace(position=record.position, spans=spans)


def call_ended(state: ViewState, record: Record) -> ViewState:
    """A tool has ended: the view tells how, where its result is missing."""
    state = ended(state, record)
    event = unended.tool_event(record)
    if event is None or event.call_id is None:
        return state
    # Nothing is known of a call that was broken off: the tool may have done its work all the same.
    if isinstance(event, events.ToolError) and event.status != "error":
        return state
    end = end_in(record, state.estimator)
    return state._replace(layout=layouts.with_end(state.layout, event.call_id, end))
