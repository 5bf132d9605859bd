"""What sinks take of the event loop: of an event, a log line; of a span, a trace.

In the time of the publishing thread's processor, beyond records that nobody hears. Each is measured
in turns with the bare library: the same lines through structlog, the same spans through the SDK.
"""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from eventctx.hooks.log import LogSink, configure_logging, level_of, lines
from eventctx.hooks.redact import DEFAULT
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from eventctx.log.record import Record
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.spans import Span
from tests.benchmarks import workload
from tests.benchmarks.rows import Row, target
from tests.benchmarks.timing import Place

_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


async def measure(place: Place) -> list[Row]:
    records = await workload.recorded(place.count(400, 80))
    spans = [DEFAULT.span(span) for span in fold(records)]
    written = [(level_of(line), line.pop("event"), line) for line in lines(records)]
    out = io.BytesIO()
    configure_logging(level="debug", file=out)
    logger = structlog.get_logger("bare").bind()
    taken: dict[str, list[float]] = {}
    for _ in range(place.count(15, 3)):
        provider = TracerProvider(resource=Resource({}), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
        work: dict[str, Callable[[], Any]] = {
            "nobody": _publishing(records),
            "log": _publishing(records, LogSink()),
            "line": lambda: [getattr(logger, how)(name, **line) for how, name, line in written],
            "trace": _publishing(records, TraceSink(provider)),
            "span": partial(_send, provider.get_tracer("bare"), spans),
        }
        for name, do in work.items():
            taken.setdefault(name, []).append(_spent(do))
        provider.shutdown()
        out.seek(0)
        out.truncate()
    structlog.reset_defaults()
    count, ended = len(records), len(spans)
    micro = {name: median(found) * 1e6 for name, found in taken.items()}
    log, trace = micro["log"] - micro["nobody"], micro["trace"] - micro["nobody"]
    note = f"{count / ended:.1f} events a span"
    return [
        target("log sink", log / count, micro["line"] / count),
        target("span sink", trace / ended, micro["span"] / ended, note),
    ]


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _publishing(records: list[Record], sink: Any = None) -> Callable[[], None]:
    hooks = Hooks()
    if sink is not None:
        hooks.on("*", sink)

    def publish() -> None:
        for record in records:
            hooks.publish(record)

    return publish


def _send(tracer: Any, spans: Sequence[Span]) -> None:
    """Spans by the SDK alone."""
    for span in spans:
        links = [
            Link(SpanContext(int(one.trace_id, 16), int(one.span_id, 16), False), one.attributes)
            for one in span.links
        ]
        said: Any = {"kind": _KINDS[span.kind], "attributes": span.attributes, "links": links}
        sent = tracer.start_span(span.name, start_time=span.start, **said)
        for event in span.events:
            sent.add_event(event.name, event.attributes, event.time)
        if span.status == "error":
            sent.set_status(Status(StatusCode.ERROR, span.message))
        sent.end(span.end)


def _spent(work: Callable[[], Any]) -> float:
    """Time of this thread's processor: what the event loop loses.

    What is in memory before is kept out of the collector's way: how much that is, is the
    benchmark's doing.
    """
    gc.collect()
    gc.freeze()
    began = time.thread_time()
    work()
    return time.thread_time() - began
