"""Counts the spans that a host's set-up loses, which OpenTelemetry does not report.

A batch processor drops the oldest spans when its queue is full, and does not report the result of a
batch. So the trace sink names every span that it hands over, and an exporter around the host's own
ticks off those that arrive:

    counting = CountingExporter(OTLPSpanExporter(...))
    provider.add_span_processor(BatchSpanProcessor(counting))
    eventctx.open(url, sinks=[TraceSink(provider, exporter=counting)])

A program without a set-up uses ``configure_tracing``. Lost spans are in ``hooks.stats().dropped``
under the name of this exporter, and so in ``eventctx stats``.

OpenTelemetry's exporters take any answer for a success, and do not report the spans that a
collector rejects from a batch that it accepts (OTLP's partial success). The exporter of
``hooks.otlp.exporter_for(URL)`` does: around it, these are counted too.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext

from eventctx.aio import within
from eventctx.errors import InvalidSetting
from eventctx.hooks.delivery import Delivers, Delivery
from eventctx.hooks.handlers import renew_after_fork
from eventctx.hooks.otlp import exporter_for, sending_resource
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import FLUSH_TIMEOUT, SpanName, TraceSink
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.dialects import GENAI, check_dialect

if TYPE_CHECKING:
    from eventctx.hooks.delivery import DeliveringExporter

_log = logging.getLogger("eventctx.hooks")

MAX_AWAITED: Final = 65_536
"""Most spans under way. Beyond it the oldest count as lost, since no queue is so long."""


class CountingExporter(SpanExporter):
    """A span exporter around another one. Never raises; its results are the other's.

    Counts only spans of ours, those of the instrumentation scope ``eventctx``, and each of them
    once. Without ``TraceSink(exporter=...)`` it counts only failed exports, and needs a call of
    ``attach`` with a registry.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._hooks: list[Hooks] = []
        self._uncounted = 0
        self._warned = False
        self._awaited: OrderedDict[SpanName, None] = OrderedDict()
        self._given_up: OrderedDict[SpanName, None] = OrderedDict()
        self._lock = threading.Lock()
        renew_after_fork(self)

    # -- the SDK's exporter ----------------------------------------------------------------------

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export by the other exporter, and count the spans that it does not accept."""
        lost, reason, result = self._export(spans)
        ours = [_name_of(one.context) for one in spans if _is_ours(one)]
        # A receiver says how many spans it rejects, and not which ones: ours are counted first.
        self._count_lost(min(lost, self._tick_off(ours)), reason)
        self._log_lost_of_others(lost - len(ours), reason)
        return result

    def _export(self, spans: Sequence[ReadableSpan]) -> tuple[int, str, SpanExportResult]:
        """How many spans were lost, why, and the result of the export."""
        try:
            if isinstance(self._exporter, Delivers):
                found = self._exporter.deliver(spans)
                failed = SpanExportResult.FAILURE if found.lost else SpanExportResult.SUCCESS
                return found.lost, found.reason, failed
            result = self._exporter.export(spans)
        except Exception as error:
            return len(spans), f"the exporter raised {error!r}", SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            return 0, "", result
        return len(spans), "the exporter did not get them to the collector", result

    def shutdown(self) -> None:
        """Shut the other exporter down."""
        try:
            self._exporter.shutdown()
        except Exception as error:
            self._count_error(error)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the other exporter; false if it did not finish in time, or raised."""
        try:
            return self._exporter.force_flush(timeout_millis)
        except Exception as error:
            self._count_error(error)
            return False

    # -- the sink's side -------------------------------------------------------------------------

    def attach(self, hooks: Hooks) -> None:
        """Count on ``hooks`` from here on, and add the losses from before any was attached."""
        with self._lock:
            self._hooks.append(hooks)
            before, self._uncounted = self._uncounted, 0
        if before:
            hooks.count_lost(self, "spans lost before an engine was open", before)

    def detach(self, hooks: Hooks) -> None:
        """Stop counting on ``hooks``."""
        with self._lock:
            if hooks in self._hooks:
                self._hooks.remove(hooks)

    def expect(self, span: SpanContext) -> None:
        """Expect the arrival of a span that is handed to the provider now."""
        with self._lock:
            self._awaited[_name_of(span)] = None
            if len(self._awaited) <= MAX_AWAITED:
                return
            oldest, _ = self._awaited.popitem(last=False)
            self._give_up((oldest,))
        self._count_lost(1, _NEVER_CAME)

    def under_way(self) -> tuple[SpanName, ...]:
        """The spans that are expected and have not arrived."""
        with self._lock:
            return tuple(self._awaited)

    def settle(self, spans: Iterable[SpanName]) -> None:
        """Count as lost those of ``spans`` that have not arrived."""
        with self._lock:
            missing = [span for span in spans if span in self._awaited]
            for span in missing:
                del self._awaited[span]
            self._give_up(missing)
        self._count_lost(len(missing), _NEVER_CAME)

    def after_fork(self) -> None:
        """In a forked child: leave the spans under way, and their hooks, to the parent."""
        self._lock = threading.Lock()
        self._awaited.clear()
        self._hooks.clear()
        self._uncounted = 0

    def _tick_off(self, spans: Iterable[SpanName]) -> int:
        """Tick off spans that arrived; returns how many of them were not counted as lost before."""
        with self._lock:
            fresh = 0
            for span in spans:
                self._awaited.pop(span, None)
                if span in self._given_up:
                    del self._given_up[span]
                else:
                    fresh += 1
            return fresh

    def _give_up(self, spans: Iterable[SpanName]) -> None:
        for span in spans:
            self._given_up[span] = None
        while len(self._given_up) > MAX_AWAITED:
            self._given_up.popitem(last=False)

    def _count_lost(self, count: int, reason: str) -> None:
        if not count:
            return
        with self._lock:
            hooks = self._hooks[-1] if self._hooks else None
            if hooks is None:
                self._uncounted += count
        if hooks is not None:
            hooks.count_lost(self, reason, count)

    def _log_lost_of_others(self, count: int, reason: str) -> None:
        """Log the loss of spans of other libraries, which no registry counts."""
        if count > 0:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            _log.log(level, "%d spans of other libraries not delivered: %s", count, reason)

    def _count_error(self, error: Exception) -> None:
        for hooks in self._hooks[-1:]:
            hooks.count_error(self, error)


_NEVER_CAME: Final = "spans that the span processor had no room for, or did not send in time"


def _name_of(span: SpanContext) -> SpanName:
    return span.trace_id, span.span_id


def _is_ours(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is not None and scope.name == conv.SCOPE and span.context is not None


class _PerProcess(SpanExporter):
    """The exporter for a URL; a forked child gets a new one, as connections cannot be shared."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process, self._exporter = os.getpid(), exporter_for(url, timeout=FLUSH_TIMEOUT)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._current().export(spans)

    def deliver(self, spans: Sequence[ReadableSpan]) -> Delivery:
        return self._current().deliver(spans)

    def _current(self) -> DeliveringExporter:
        if self._process != os.getpid():
            self._exporter = exporter_for(self._url, timeout=FLUSH_TIMEOUT)
            self._process = os.getpid()
        return self._exporter

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def configure_tracing(
    url: str = "http://localhost:4318",
    *,
    service: str | None = None,
    set_global: bool = False,
    dialect: str = GENAI,
) -> TraceSink:
    """Set tracing up for a program that has no OpenTelemetry set-up; the library never calls this.

    Returns a sink that sends its spans to the collector at ``url`` (see ``exporter_for``), in
    batches, from a thread, and counts those that do not arrive. ``service`` names the program, in
    place of ``OTEL_SERVICE_NAME``. The provider is only the sink's; with ``set_global`` it becomes
    the process's, so that the spans of other libraries go there too. ``dialect`` as in
    ``TraceSink``; for another than GenAI's the provider has no limit of attributes, since each
    message is several. When the last engine of the sink closes, and when the program ends, it sends
    the rest, for at most ``FLUSH_TIMEOUT`` seconds. Raises InvalidSetting for an invalid URL or
    dialect, if the ``otlp`` extra is not installed, and with ``set_global`` if the host has set a
    provider already.
    """
    if set_global and not isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider):
        raise InvalidSetting(
            "set_global: expected no tracer provider yet, found one that the host has set; use "
            "TraceSink() to send there, or leave set_global out"
        )
    unlimited = check_dialect(dialect) != GENAI
    counting = CountingExporter(_PerProcess(url))
    provider = TracerProvider(
        resource=sending_resource(service),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_span_attributes=SpanLimits.UNSET) if unlimited else None,
    )
    provider.add_span_processor(BatchSpanProcessor(counting))
    if set_global:
        otel.set_tracer_provider(provider)
    # The provider's own exit handler has no time limit, and would wait for a collector that hangs.
    atexit.register(_end, provider)
    return TraceSink(provider, exporter=counting, dialect=dialect)


def _end(provider: TracerProvider) -> None:
    try:
        within(FLUSH_TIMEOUT, provider.shutdown, "eventctx-shutdown")
    except RuntimeError:  # some versions of Python start no thread at this point
        provider.shutdown()
