"""The identity of spans: trace id, parent, and links.

*Trace id.* A turn's records belong to the trace that ``prompt:submit`` names, or to the one
derived from session and turn. Outside a turn, the trace id is derived from the operation at the
root: a record without a parent is a root, and a record with a parent belongs to its parent's
trace. A record in no turn and in no operation, such as ``session:start``, is in no trace. Log
lines use the same fold.

*Parent.* A span has the parent of its record, except for tools. In the log the parent of a tool
call is the model call that asked for it. That call has ended when the tool begins, and viewers
take a child that begins after its parent's end for a mistake: Jaeger leaves it out of the critical
path and the flame graph, and suspects a wrong clock. So a tool's span gets the parent of that
model call, and the log's parent becomes an attribute.

*Links.* A span links to the model call that asked for a tool, to a compaction, and to another
session. A link is on a span with a parent, never at the top of a trace: there Jaeger's interface
would call the trace incomplete. So the first span inside a turn carries the links of its session,
and the turn itself says the same in attributes. All ids follow from this session's records; the
traces that a link leads to may never have been sent.

*Title.* A person knows a session by the first words in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import (
    Erased,
    Event,
    MessageAdded,
    MessagesSet,
    PostCompact,
    PromptSubmit,
    SessionFork,
    SessionLinked,
    ToolPre,
)
from eventctx.log.ids import derive_trace_id, is_span_id, is_trace_id
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.messages.parts import read_parts
from eventctx.projections.flat import read
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import OPENS, Attributes
from eventctx.projections.trace.spans import OpenSpan, SpanLink
from eventctx.projections.trace.texts import Clean, plain_text
from eventctx.text import clip

# -- trace ids -----------------------------------------------------------------------------------

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

    ``has_trace`` tells whether there is such a span.
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
    """Whether ``record`` is in a turn or in an operation; ``ids`` are those after it."""
    if record.turn_id is not None or record.type in OPENS:
        return True
    return any(span_id in (record.span_id, record.parent_span_id) for span_id, _ in ids.outside)


# -- parents -------------------------------------------------------------------------------------

MAX_CALLS: Final = 64
"""Most model calls whose tools may still begin, kept for one session; the oldest goes first."""

Calls = tuple[tuple[str, str | None], ...]
"""Pairs ``(span id, parent span id)`` of model calls, the newest last."""


def remember_call(calls: Calls, record: Record) -> Calls:
    """``calls`` with the model call that ``record`` begins."""
    if record.span_id is None:
        return calls
    return (*calls[1 - MAX_CALLS :], (record.span_id, record.parent_span_id))


def parent_of_tool(
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


# -- links ---------------------------------------------------------------------------------------

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


def with_last_span(known: Lineage, record: Record, trace_id: str) -> Lineage:
    """``known`` after the record that begins a span of this trace."""
    if record.turn_id is None or record.span_id is None:
        return known
    return replace(known, last=(record.turn_id, trace_id, record.span_id))


def lineage_of_fork(known: Lineage, record: Record, event: SessionFork) -> Lineage:
    """The lineage of a fork, from that of the records that it inherits."""
    attributes: Attributes = {conv.FORK_PARENT: event.parent, conv.FORK_AT: event.at}
    if known.last is not None:
        turn_id, trace_id, span_id = known.last
        # A fork reads inherited records under its own name, but the spans of the parent's own
        # records, which come after the parent's own fork, are in traces named after the parent.
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


def with_origin(known: Lineage, event: SessionLinked) -> Lineage:
    """``known`` after the record that names the session that this one belongs to."""
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


def links_of_tool(record: Record, parent: str | None, trace_id: str) -> tuple[SpanLink, ...]:
    """The link of a tool's span to the model call that asked for it, which has the same parent."""
    named = record.parent_span_id
    # Without a parent, Jaeger's interface would draw it below the span that it links to.
    if named is None or parent is None or parent == named:
        return ()
    return (SpanLink(trace_id, named, {conv.LINK_KIND: "model_call"}),)


def links_of_chat(known: Lineage, attributes: Attributes, trace_id: str) -> tuple[SpanLink, ...]:
    """The link of a model call to the compaction that its view went through, if in another trace.

    ``attributes`` are those of the call's span.
    """
    if known.compaction is None:
        return ()
    position, other, span_id = known.compaction
    if other == trace_id or attributes.get(conv.REQUEST_PLAN) != position:
        return ()
    return (SpanLink(other, span_id, {conv.LINK_KIND: "compaction", conv.EVENT_SEQ: position}),)


def links_of_child(
    known: Lineage, turn: OpenSpan | None, parent: str | None
) -> tuple[SpanLink, ...]:
    """The session's links, for the first span inside its turn."""
    if not known.origins or turn is None or turn.carried or parent != turn.span_id:
        return ()
    return tuple([link for link in known.origins if link.trace_id != turn.trace_id])


_TYPES: Final = frozenset(("prompt:submit", "tool:pre", "context:post_compact"))

SpanIds = tuple[str, str]
"""A span's trace id and span id, in lowercase hex."""


class CallSpans:
    """Collects the spans of a session's tool calls and compactions from its records.

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


# -- title ---------------------------------------------------------------------------------------

MAX_TITLE: Final = 80
"""Characters of a title."""

_SPEAKS: Final = frozenset(("context:message_added", "context:messages_set"))


class Title(msgspec.Struct, frozen=True):
    """A session's title, and the place of the message that it is taken from.

    ``text`` is None if that message has no words, or they are erased: no other takes its place.
    """

    position: int
    index: int
    text: str | None


def title_of(title: Title | None, record: Record, clean: Clean) -> Title | None:
    """The title after ``record``, which must be read with its bodies; ``clean`` redacts a text."""
    if title is None:
        return _first(record, clean) if record.type in _SPEAKS else None
    if title.text is not None and record.type == "context:erased":
        event = read(record)
        if isinstance(event, Erased) and (title.position, title.index) in event.bodies:
            return Title(title.position, title.index, None)
    return title


def _first(record: Record, clean: Clean) -> Title | None:
    event = read(record)
    for index, body in enumerate(record.bodies):
        harness = isinstance(event, MessageAdded) and event.origin is not None
        harness = harness or (isinstance(event, MessagesSet) and index in event.harness)
        if harness or not decode_facts(body.facts).human:
            continue
        text = None if body.data is None else _beginning(decode_body(body.data), clean)
        return Title(record.position, index, text)
    return None


def _beginning(message: dict[str, object], clean: Clean) -> str | None:
    """The first words of a message, on one line; None if it has none."""
    for part in read_parts(message):
        if part.kind == "text":
            text = " ".join(plain_text(part.value, clean).split())
            if text:
                return clip(text, MAX_TITLE)
    return None
