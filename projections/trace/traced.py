"""The two stages of a trace as one fold: spans, and, if wanted, their contents."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eventctx.log.record import Record
from eventctx.projections.trace import content as trace_content
from eventctx.projections.trace import fold as trace
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import OPENS
from eventctx.projections.trace.content import ContentState
from eventctx.projections.trace.genai_messages import Clean
from eventctx.projections.trace.spans import OpenSpan, Span
from eventctx.projections.trace.state import TraceState


class Traced(msgspec.Struct, frozen=True):
    """The state of both stages. ``finished`` are the spans that the last record completed.

    ``history`` is the position of the last record folded by ``caught_up`` (-1: none). A span that
    began in this history and is still open belongs to the process that began it, or to a fold of
    the whole log; ``unfinished`` leaves it out.
    """

    spans: TraceState
    content: ContentState | None = None
    finished: tuple[Span, ...] = ()
    history: int = -1

    def begun(self, record: Record) -> OpenSpan | None:
        """The open span that ``record`` began; None if it began none."""
        if record.type not in OPENS:
            return None
        return self.spans.open.get(record.span_id or "")


def initial(clean: Clean | None = None) -> Traced:
    """The state before a stream's first record.

    With ``clean``, which redacts a text, spans carry contents and records need their bodies.
    """
    return Traced(trace.initial(), None if clean is None else trace_content.initial(clean))


def fresh(first: Traced) -> Traced:
    """The state before another stream's first record, with or without contents as in ``first``."""
    return first if first.content is None else initial(first.content.clean)


def evolve(state: Traced, record: Record) -> Traced:
    """The state after ``record``."""
    spans = trace.evolve(state.spans, record)
    if state.content is None:
        return Traced(spans, None, spans.finished, state.history)
    content, finished = trace_content.evolve(state.content, record, spans.finished)
    return Traced(spans, content, tuple(finished), state.history)


def caught_up(first: Traced, records: Iterable[Record]) -> Traced:
    """The state behind a stream's ``records``, which were appended before anyone observed them."""
    state, last = fresh(first), -1
    for record in records:
        state, last = evolve(state, record), record.position
    return msgspec.structs.replace(state, finished=(), history=last)


def unfinished(state: Traced) -> list[Span]:
    """The spans that no record has completed, as of the last record, without the history's."""
    left: Iterable[Span] = trace.unfinished(state.spans)
    if state.content is not None:
        left = trace_content.unfinished(state.content, left)
    return [span for span in left if _began(span) > state.history]


def _began(span: Span) -> int:
    position = span.attributes[conv.EVENT_SEQ]
    return position if isinstance(position, int) else -1
