"""The sink that sends spans to OpenTelemetry, live: ``projections.trace`` folded as records come.

It sends every span that the fold finishes through the host's own set-up (``hooks.tracer``). As the
engine's CurrentSpan it also makes a span of ours the current one during a turn or a call, so that
the spans of an instrumented HTTP client nest in it, and a turn joins the host's trace.
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
from eventctx.hooks.handlers import PerSession, renew_after_fork
from eventctx.hooks.redact import DEFAULT, Redactor, cleaner
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import History
from eventctx.hooks.tracer import RecordTracer, span_context
from eventctx.log.record import Record
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.dialects import GENAI, check_dialect, in_dialect
from eventctx.projections.trace.fold import SessionTrace, without_open_turns
from eventctx.projections.trace.spans import Span

MAX_SESSIONS: Final = 4096
"""Most sessions whose open spans a sink keeps; the least recently seen is dropped first."""

FLUSH_TIMEOUT: Final = 5.0
"""Seconds that the last spans have to arrive when the last engine of a sink closes."""

_AROUND: Final = otel_context.create_key("eventctx-around")

SpanName = tuple[int, int]
"""A span's trace id and span id."""


class Counting(Protocol):
    """Counts the spans that do not arrive; ``hooks.counting.CountingExporter`` implements it."""

    def attach(self, hooks: Hooks) -> None:
        """Count lost spans on these hooks."""
        ...

    def detach(self, hooks: Hooks) -> None:
        """Stop counting on these hooks."""
        ...

    def expect(self, span: SpanContext) -> None:
        """Expect the arrival of a span that is handed to the provider now."""
        ...

    def under_way(self) -> tuple[SpanName, ...]:
        """The spans that are expected and have not arrived."""
        ...

    def settle(self, spans: Iterable[SpanName]) -> None:
        """Count as lost those of ``spans`` that have not arrived."""
        ...


def content_is_wanted() -> bool:
    """Whether the conventions' environment variable enables contents on spans."""
    return os.environ.get(conv.CAPTURE_CONTENT, "").strip().lower() in _WANTED


_WANTED: Final = ("span_only", "span_and_event", "true")


class TraceSink:
    """A sink of spans: ``eventctx.open(sinks=[TraceSink()])``.

    ``tracer_provider``: by default the global one, which is looked up again until there is one.
    ``redactor`` replaces secrets; None for no redaction. With ``content``, spans carry the texts of
    messages, redacted and cut; by default they do if the environment variable
    ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` enables it. ``dialect`` names the
    attributes: ``genai``, or ``openinference``, which Phoenix reads. ``exporter``: the
    CountingExporter in the provider's set-up. With it, spans that a full queue or the collector
    loses are counted, and when the last engine closes the provider is flushed, for at most
    ``FLUSH_TIMEOUT`` seconds. A sampled span that the set-up filters out counts as lost.

    Spans are handed over while the agent works: with a processor that sends them at once
    (SimpleSpanProcessor) the agent waits for the collector; with a BatchSpanProcessor it does not.
    Raises InvalidSetting for an unknown dialect.
    """

    def __init__(
        self,
        tracer_provider: otel.TracerProvider | None = None,
        *,
        redactor: Redactor | None = DEFAULT,
        content: bool | None = None,
        exporter: Counting | None = None,
        dialect: str = GENAI,
    ) -> None:
        self._dialect = check_dialect(dialect)
        self._exporter = exporter
        self._tracer = RecordTracer(tracer_provider, exporter.expect if exporter else None)
        self._redactor = redactor
        wanted = content_is_wanted() if content is None else content
        self._first = SessionTrace.start(cleaner(redactor) if wanted else None)
        self._states = PerSession[SessionTrace](MAX_SESSIONS)
        self._hooks: list[Hooks] = []
        self._lock = threading.Lock()
        renew_after_fork(self)

    # -- records to spans ------------------------------------------------------------------------

    def __call__(self, record: Record) -> None:
        """Fold the record and send the spans that it ended."""
        if not self._tracer.ready():
            return
        state = self._step(record)
        begun = state.opened_by(record)
        if begun is not None:
            try:
                self._tracer.decide(in_dialect(begun, self._dialect))
            except Exception as error:  # the host's sampler failed; the finished spans still go
                self._count(error)
        if state.finished:
            self._send(state.finished)

    def history(self) -> History:
        """The history that the spans need; "none" as long as there is no provider to send to."""
        if not self._tracer.ready():
            return "none"
        return "records" if self._first.content is None else "contents"

    def resume(self, records: Iterable[Record]) -> None:
        """Fold a session's records from its beginning without sending anything.

        So attributes that depend on the history (a compaction's sequence number) are the same live
        as from the log. A span that the history leaves open belongs to another process, or was lost
        in a crash: unless a record ends it here, it is only in a trace made from the log.
        """
        history = list(records)
        if history:
            state = self._first.after_history(history)
            with self._lock:
                self._states.keep(history[0].stream, state)

    def flush(self, session_id: str | None = None) -> None:
        """Send the unfinished spans of one session, or of all, and drop the sessions' states.

        For the end of a program: no records of those sessions may follow.
        """
        with self._lock:
            states = self._states.take(session_id)
        self._give_up(states)

    def _give_up(self, states: Iterable[SessionTrace], *, open_turns: bool = True) -> None:
        if self._tracer.ready():
            for state in states:
                left = state.unfinished()
                self._send(left if open_turns else without_open_turns(left))

    def attach(self, hooks: Hooks) -> None:
        """Count on ``hooks`` the errors that the host's set-up raises for a span."""
        with self._lock:
            self._hooks.append(hooks)
        if self._exporter is not None:
            self._exporter.attach(hooks)

    def detach(self, hooks: Hooks) -> None:
        """Send the unfinished spans of the engine of these hooks, which has closed.

        A turn that is still open is left to the process that ends it, with what is open in it: sent
        now as well, it would be there twice.

        With ``exporter``, the last engine that this sink serves waits for all spans to arrive.
        """
        with self._lock:
            last = all(one is hooks for one in self._hooks)
            if not last:
                self._hooks.remove(hooks)
            shared = hooks in self._hooks and not last
            left = [] if shared else self._states.take(number=None if last else hooks.number)
        try:
            self._give_up(left, open_turns=False)
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
        # The spans of an engine that opens meanwhile are not among these; they may still arrive.
        ours = self._exporter.under_way()
        try:
            within(FLUSH_TIMEOUT, self._tracer.force_flush, "eventctx-flush")
        except Exception as error:  # a processor of the host may raise anything
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
                redacted = span if self._redactor is None else self._redactor.span(span)
                self._tracer.send(in_dialect(redacted, self._dialect))
            except Exception as error:
                self._count(error)

    def _count(self, error: Exception) -> None:
        """Count an error of the host's set-up; raise it if no hooks are attached to count it."""
        counting = self._hooks[-1:]
        if not counting:
            raise error
        counting[0].count_error(self, error)

    def _step(self, record: Record) -> SessionTrace:
        with self._lock:
            state = (self._states.get(record.stream) or self._first.restart()).after(record)
            forgotten = self._states.keep(record.stream, state)
        if forgotten is not None and (left := forgotten.unfinished()):
            for hooks in self._hooks[-1:]:
                hooks.count_lost(self, f"more than {MAX_SESSIONS} sessions at once", len(left))
        return state

    # -- the engine's CurrentSpan ----------------------------------------------------------------

    def enter(self, session_id: str, trace_id: str, span_id: str) -> object:
        """Make a span of ours current in this task; returns the token for ``exit``."""
        if self._ready():
            current = NonRecordingSpan(span_context(trace_id, span_id, self._flags(trace_id)))
            return otel_context.attach(otel.set_span_in_context(current))
        # Without a provider: keep the ids to ourselves. Other libraries would propagate a span here
        # as one that is not sampled.
        return otel_context.attach(otel_context.set_value(_AROUND, (trace_id, span_id)))

    def exit(self, token: Any) -> None:
        """Restore the span that was current before ``enter``; call it in the same task."""
        otel_context.detach(token)

    def ambient(self) -> tuple[str, str] | None:
        """Return trace id and span id of the current span, the host's or ours; None without one."""
        current = otel.get_current_span().get_span_context()
        if not current.is_valid:
            return cast("tuple[str, str] | None", otel_context.get_value(_AROUND))
        return otel.format_trace_id(current.trace_id), otel.format_span_id(current.span_id)

    def _ready(self) -> bool:
        try:
            return self._tracer.ready()
        except Exception as error:  # a provider of the host may raise anything
            for hooks in self._hooks[-1:]:
                hooks.count_error(self, error)
            return False

    def _flags(self, trace_id: str) -> TraceFlags:
        try:
            return self._tracer.flags(trace_id)
        except Exception as error:  # a sampler of the host may raise anything
            for hooks in self._hooks[-1:]:
                hooks.count_error(self, error)
            return TraceFlags(TraceFlags.DEFAULT)
