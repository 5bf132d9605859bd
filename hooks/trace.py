"""Spans to OpenTelemetry, live: the fold of ``projections.trace`` over records as they come.

Every span that the fold finishes is sent through the host's own set-up (``hooks.tracer``). As the
engine's CurrentSpan the sink also makes a span of ours the current one during a turn or a call, so
that the spans of an instrumented HTTP client nest in it, and a turn joins the host's trace.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, Final, Protocol, cast

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from eventctx.aio import within
from eventctx.hooks.forking import renew_after_fork
from eventctx.hooks.per_session import PerSession
from eventctx.hooks.redact import DEFAULT, Redactor, cleaner
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import History
from eventctx.hooks.tracer import RecordTracer, span_context
from eventctx.log.record import Record
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span
from eventctx.projections.trace.traced import Traced, caught_up, evolve, fresh, initial, unfinished

MAX_SESSIONS: Final = 4096
"""Sessions whose open spans a sink holds; the least recently heard of goes first."""


FLUSH_TIMEOUT: Final = 5.0
"""Seconds that the last spans have to arrive when the last engine of a sink closes."""


_AROUND: Final = otel_context.create_key("eventctx-around")

SpanName = tuple[int, int]
"""The id of its trace, and its own."""


class Counting(Protocol):
    """What counts the spans that do not arrive: ``hooks.counting.CountingExporter``."""

    def attach(self, hooks: Hooks) -> None:
        """Count on these hooks."""
        ...

    def detach(self, hooks: Hooks) -> None:
        """Count on them no longer."""
        ...

    def expect(self, span: SpanContext) -> None:
        """Await a span that is handed to the provider now."""
        ...

    def under_way(self) -> tuple[SpanName, ...]:
        """The spans that are awaited."""
        ...

    def settle(self, spans: Iterable[SpanName]) -> None:
        """Count as lost those that are awaited still."""
        ...


def content_is_wanted() -> bool:
    """Whether the conventions' environment variable asks for contents on spans."""
    return os.environ.get(conv.CAPTURE_CONTENT, "").strip().lower() in _WANTED


_WANTED: Final = ("span_only", "span_and_event", "true")


class TraceSink:
    """A sink of spans: ``eventctx.open(sinks=[TraceSink()])``.

    ``tracer_provider``: the global one by default, asked for again until there is one.
    ``redactor`` replaces secrets; None for nothing. With ``content``, spans carry the texts of
    messages, redacted and cut; by default they do where the environment variable
    ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` says so. ``exporter``: the
    CountingExporter in the provider's set-up. With it, spans that a full queue or the collector
    loses are counted, and when the last engine closes the provider is flushed, for
    ``FLUSH_TIMEOUT`` seconds at most. A sampled span that the set-up filters out counts as lost.

    Spans are handed over while the agent works: a provider whose processor sends them itself
    (SimpleSpanProcessor) makes the agent wait for the collector; a BatchSpanProcessor does not.
    """

    def __init__(
        self,
        tracer_provider: otel.TracerProvider | None = None,
        *,
        redactor: Redactor | None = DEFAULT,
        content: bool | None = None,
        exporter: Counting | None = None,
    ) -> None:
        self._exporter = exporter
        self._tracer = RecordTracer(tracer_provider, exporter.expect if exporter else None)
        self._redactor = redactor
        wanted = content_is_wanted() if content is None else content
        self._first = initial(cleaner(redactor) if wanted else None)
        self._states = PerSession[Traced](MAX_SESSIONS)
        self._hooks: list[Hooks] = []
        self._lock = threading.Lock()
        renew_after_fork(self)

    # -- records to spans ------------------------------------------------------------------------

    def __call__(self, record: Record) -> None:
        """Fold the record and send the spans that it ended."""
        if not self._tracer.ready():
            return
        state = self._step(record)
        begun = state.begun(record)
        if begun is not None:
            try:
                self._tracer.decide(begun)
            except Exception as error:  # the host's sampler, which must not cost other spans
                self._count(error)
        self._send(state.finished)

    def history(self) -> History:
        """What the spans need, once there is somebody to send them to."""
        if not self._tracer.ready():
            return "none"
        return "records" if self._first.content is None else "contents"

    def resume(self, records: Iterable[Record]) -> None:
        """Fold a session's records from its beginning without sending anything.

        So what a span says of the history (a compaction's sequence number) is the same live as from
        the log. A span that the history leaves open is another process's to end, or was lost in a
        crash: unless its end is heard, only the log tells it.
        """
        history = list(records)
        if history:
            state = caught_up(self._first, history)
            with self._lock:
                self._states.keep(history[0].stream, state)

    def flush(self, session_id: str | None = None) -> None:
        """Send the unfinished spans of one session, or of all, and forget the sessions.

        For the end of a program: nothing of those sessions may follow.
        """
        with self._lock:
            states = self._states.take(session_id)
        self._give_up(states)

    def _give_up(self, states: Iterable[Traced]) -> None:
        if self._tracer.ready():
            for state in states:
                self._send(unfinished(state))

    def attach(self, hooks: Hooks) -> None:
        """Count on ``hooks`` what the host's set-up raises when it is given a span."""
        with self._lock:
            self._hooks.append(hooks)
        if self._exporter is not None:
            self._exporter.attach(hooks)

    def detach(self, hooks: Hooks) -> None:
        """Send what is unfinished of the engine of these hooks, which has closed.

        With ``exporter``, the last engine that this sink serves waits for all to arrive.
        """
        with self._lock:
            last = all(one is hooks for one in self._hooks)
            if not last:
                self._hooks.remove(hooks)
            shared = hooks in self._hooks and not last
            left = [] if shared else self._states.take(number=None if last else hooks.number)
        try:
            self._give_up(left)
            if last:
                self._await_arrival()
        finally:
            with self._lock:
                if last and hooks in self._hooks:
                    self._hooks.remove(hooks)
            if self._exporter is not None:
                self._exporter.detach(hooks)

    def _await_arrival(self) -> None:
        if self._exporter is None:
            return
        # Not those of an engine that opens meanwhile: they have time until it closes.
        ours = self._exporter.under_way()
        try:
            within(FLUSH_TIMEOUT, self._tracer.force_flush, "eventctx-flush")
        except Exception as error:  # the host's processors are anybody's code
            self._count(error)
        self._exporter.settle(ours)

    def after_fork(self) -> None:
        """In a forked child: take a new lock, and leave engines and open spans to the parent."""
        self._lock = threading.Lock()
        self._states.clear()
        self._hooks.clear()

    def _send(self, spans: Iterable[Span]) -> None:
        for span in spans:
            try:
                self._tracer.send(span if self._redactor is None else self._redactor.span(span))
            except Exception as error:
                self._count(error)

    def _count(self, error: Exception) -> None:
        """Count what the host's set-up raised; where nobody counts, raise it."""
        counting = self._hooks[-1:]
        if not counting:
            raise error
        counting[0].count_error(self, error)

    def _step(self, record: Record) -> Traced:
        with self._lock:
            state = evolve(self._states.get(record.stream) or fresh(self._first), record)
            forgotten = self._states.keep(record.stream, state)
        if forgotten is not None and (left := unfinished(forgotten)):
            for hooks in self._hooks[-1:]:
                hooks.count_lost(self, f"more than {MAX_SESSIONS} sessions at once", len(left))
        return state

    # -- the engine's CurrentSpan ----------------------------------------------------------------

    def enter(self, session_id: str, trace_id: str, span_id: str) -> object:
        """Make a span of ours current in this task; returns the token for ``exit``."""
        if self._ready():
            current = NonRecordingSpan(span_context(trace_id, span_id, self._flags(trace_id)))
            return otel_context.attach(otel.set_span_in_context(current))
        # No span, which others would pass on as one that is not sampled: just what we need to know.
        return otel_context.attach(otel_context.set_value(_AROUND, (trace_id, span_id)))

    def exit(self, token: Any) -> None:
        """Restore what was current before ``enter``; to be called in the same task."""
        otel_context.detach(token)

    def ambient(self) -> tuple[str, str] | None:
        """Return trace id and span id of the span around, the host's or ours; None without one."""
        current = otel.get_current_span().get_span_context()
        if not current.is_valid:
            return cast("tuple[str, str] | None", otel_context.get_value(_AROUND))
        return otel.format_trace_id(current.trace_id), otel.format_span_id(current.span_id)

    def _ready(self) -> bool:
        try:
            return self._tracer.ready()
        except Exception as error:  # so is its provider
            for hooks in self._hooks[-1:]:
                hooks.count_error(self, error)
            return False

    def _flags(self, trace_id: str) -> TraceFlags:
        try:
            return self._tracer.flags(trace_id)
        except Exception as error:  # the host's sampler is anybody's code
            for hooks in self._hooks[-1:]:
                hooks.count_error(self, error)
            return TraceFlags(TraceFlags.DEFAULT)
