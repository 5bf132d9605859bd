"""Links of spans: to the model call that asked for a tool, to a compaction, to another session.

A link is on a span with a parent, never at the top of a trace: there Jaeger's interface would call
the trace incomplete. So the first span inside a turn carries the links of its session, and the
turn itself says the same in attributes. All ids follow from this session's records; the traces that
a link leads to may never have been sent.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from eventctx.log.events import SessionFork, SessionLinked
from eventctx.log.ids import derive_trace_id, is_span_id, is_trace_id
from eventctx.log.record import Record
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attributes
from eventctx.projections.trace.spans import OpenSpan, SpanLink

MAX_ORIGINS: Final = 8
"""Most links to other sessions that a session's spans have; the newest stay."""


class Lineage(msgspec.Struct, frozen=True):
    """Where a session's spans may link to.

    - ``last``: turn id, trace id and span id of the last span that began in a turn.
    - ``compaction``: position, trace id and span id of the last compaction that was applied.
    - ``origins``: links to the span in another session that this one comes from.
    - ``attributes``: the same in words, for the session's turns.
    """

    last: tuple[str, str, str] | None = None
    compaction: tuple[int, str, str] | None = None
    origins: tuple[SpanLink, ...] = ()
    attributes: Attributes = {}


def begun(known: Lineage, record: Record, trace_id: str) -> Lineage:
    """``known`` behind the record that begins a span of this trace."""
    if record.turn_id is None or record.span_id is None:
        return known
    return replace(known, last=(record.turn_id, trace_id, record.span_id))


def forked(known: Lineage, record: Record, event: SessionFork) -> Lineage:
    """The lineage of a fork, from that of the records that it inherits."""
    attributes: Attributes = {conv.FORK_PARENT: event.parent, conv.FORK_AT: event.at}
    if known.last is not None:
        turn_id, trace_id, span_id = known.last
        # A fork reads inherited records under its own name, but the spans of the parent's own
        # records, which come behind the parent's own fork, are in traces named after the parent.
        if trace_id == derive_trace_id(record.stream, turn_id):
            trace_id = derive_trace_id(event.parent, turn_id)
    elif known.origins:  # the parent is a fork, too, and has no span of its own before this
        trace_id, span_id = known.origins[0].trace_id, known.origins[0].span_id
    else:
        return Lineage(attributes=attributes)
    named: Attributes = {
        conv.LINK_KIND: "fork",
        conv.LINK_SESSION: event.parent,
        conv.EVENT_SEQ: event.at,
    }
    return Lineage(origins=(SpanLink(trace_id, span_id, named),), attributes=attributes)


def linked(known: Lineage, event: SessionLinked) -> Lineage:
    """``known`` behind the record that names the session that this one belongs to."""
    if event.relation != "parent":
        return known
    attributes: Attributes = {conv.PARENT_SESSION: event.session, conv.PARENT_KIND: event.kind}
    if event.call_id is not None:
        attributes[conv.PARENT_CALL_ID] = event.call_id
    known = replace(known, attributes=known.attributes | attributes)
    trace_id, span_id = event.trace_id or "", event.span_id or ""
    if not (is_trace_id(trace_id) and is_span_id(span_id)):
        return known
    named: Attributes = {conv.LINK_KIND: event.kind, conv.LINK_SESSION: event.session}
    origins = (*known.origins, SpanLink(trace_id, span_id, named))
    return replace(known, origins=origins[-MAX_ORIGINS:])


def of_tool(record: Record, parent: str | None, trace_id: str) -> tuple[SpanLink, ...]:
    """The link of a tool's span to the model call beside which it hangs."""
    named = record.parent_span_id
    # Without a parent, Jaeger's interface would draw it below the span that it links to.
    if named is None or parent is None or parent == named:
        return ()
    return (SpanLink(trace_id, named, {conv.LINK_KIND: "model_call"}),)


def of_chat(known: Lineage, attributes: Attributes, trace_id: str) -> tuple[SpanLink, ...]:
    """The link of a model call to the compaction that its view went through, if in another trace.

    ``attributes`` are those of the call's span.
    """
    if known.compaction is None:
        return ()
    position, other, span_id = known.compaction
    if other == trace_id or attributes.get(conv.COMPACTION_LAST_ID) != position:
        return ()
    return (SpanLink(other, span_id, {conv.LINK_KIND: "compaction", conv.EVENT_SEQ: position}),)


def of_child(known: Lineage, turn: OpenSpan | None, parent: str | None) -> tuple[SpanLink, ...]:
    """The session's links, for the first span inside its turn."""
    if not known.origins or turn is None or turn.carried or parent != turn.span_id:
        return ()
    return tuple([link for link in known.origins if link.trace_id != turn.trace_id])
