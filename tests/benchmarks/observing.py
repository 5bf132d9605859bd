"""The cost of observation: per event with each sink, and of sending a session again."""

from __future__ import annotations

import asyncio
import gc
import io
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from pyee.base import EventEmitter

import eventctx
from eventctx.cli.output.trace_outputs import BATCH, OtlpFile
from eventctx.hooks.log import LogSink, configure_logging, level_of, lines
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.otlp import readable
from eventctx.hooks.redact import DEFAULT
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import Sinks
from eventctx.hooks.trace import TraceSink
from eventctx.log.record import Record
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.spans import Span
from eventctx.projections.view import request_view
from eventctx.projections.view.state import ViewState
from eventctx.queries import spans as tracing
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, of_processor
from tests.benchmarks.timing import Samples

FIGURE = "observing"
_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


async def measure(place: Place) -> list[Row]:
    records = await _recorded(place.count(200, 40))
    repeats = place.count(15, 3)
    return [
        *map(of_processor, _live(records, repeats)),
        *await _again(place, repeats),
        await _turns(place.count(20, 5)),
    ]


async def session(ctx: eventctx.Context, rounds: int, think: float = 0.0) -> None:
    """A tool loop in turns of ten iterations; ``think`` is what its model takes, in seconds."""
    for turn_number in range(max(1, rounds // 10)):
        async with ctx.turn(f"turn-{turn_number}", agent="coder") as turn:
            await ctx.add_message({"role": "user", "content": f"Task {turn_number}."})
            for number in range(10):
                async with turn.iteration() as cycle:
                    await ctx.get_messages_for_request()
                    async with cycle.provider_call("model-1", "acme") as call:
                        await asyncio.sleep(think)
                        await call.usage(900, 20, cache_read=300)
                    key = f"call_{turn_number}_{number}"
                    use = {"type": "tool_use", "id": key, "name": "read", "input": {"path": key}}
                    await ctx.add_message({"role": "assistant", "content": [use]})
                    async with cycle.tool_call("read", key):
                        pass
                    done = {"type": "tool_result", "tool_use_id": key, "content": "z" * 900}
                    await ctx.add_message({"role": "user", "content": [done]})


async def _recorded(rounds: int) -> list[Record]:
    async with eventctx.open() as engine:
        await session(await engine.session("s", max_tokens=8_000), rounds)
        return [record async for record in engine.records("s", bodies=True)]


# -- live ----------------------------------------------------------------------------------------


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _live(records: list[Record], repeats: int) -> list[Row]:
    samples = Samples()
    spans = [DEFAULT.span(span) for span in fold(records)]
    views = _views(records)
    written = [(level_of(line), line.pop("event"), line) for line in lines(records)]
    out = io.BytesIO()
    configure_logging(level="debug", file=out)
    logger = structlog.get_logger("bare").bind()
    emitter = EventEmitter()
    emitter.on("e", lambda record: None)
    for _ in range(repeats):
        provider = _provider()
        tracer = provider.get_tracer("bare")
        _cpu(samples, "pyee", lambda: [emitter.emit("e", record) for record in records])
        _cpu(samples, "nobody", _publishing(records))
        _cpu(samples, "log", _publishing(records, LogSink()))
        _cpu(
            samples,
            "line",
            lambda: [getattr(logger, how)(name, **line) for how, name, line in written],
        )
        _cpu(samples, "trace", _publishing(records, TraceSink(provider)))
        _cpu(samples, "span", partial(_sent_bare, tracer, spans))
        meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
        _cpu(samples, "metrics", _lending(records, views, MetricsSink(meters)))
        provider.shutdown()
        meters.shutdown()
        out.seek(0)
        out.truncate()
    structlog.reset_defaults()
    count, ended = len(records), len(spans)
    nobody = samples.micro("nobody") / count
    return [
        Row(
            figure=FIGURE, name="an event that nobody hears", unit="µs", value=nobody,
            against="a pyee emit to one handler", floor=samples.micro("pyee") / count, limit=2.0,
        ),
        Row(
            figure=FIGURE, name="the log sink, more per event", unit="µs",
            value=samples.micro("log") / count - nobody, against="a structlog JSON line",
            floor=samples.micro("line") / count, limit=2.0, note="of the same fields, every level",
        ),
        Row(
            figure=FIGURE, name="the span sink, more per span", unit="µs",
            value=(samples.micro("trace") - samples.micro("nobody")) / ended,
            against="an SDK span, batched", floor=samples.micro("span") / ended, limit=1.5,
            note=f"{count / ended:.1f} events a span",
        ),
        Row(
            figure=FIGURE, name="the metrics sink, more per event", unit="µs",
            value=samples.micro("metrics") / count - nobody,
            note="the session lends it the view of every request",
        ),
    ]  # fmt: skip


def _provider() -> TracerProvider:
    """The SDK's own batching; its thread's time is not counted, for ours or for the bare span."""
    provider = TracerProvider(resource=Resource({}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    return provider


def _publishing(records: list[Record], sink: Any = None) -> Callable[[], None]:
    hooks = Hooks()
    if sink is not None:
        hooks.on("*", sink)

    def publish() -> None:
        for record in records:
            hooks.publish(record)

    return publish


def _views(records: list[Record]) -> dict[int, ViewState]:
    """The view of every prepared request, which a session has folded for the request itself."""
    view, found = request_view.initial(), {}
    for record in records:
        view = request_view.evolve(view, record)
        if record.type == "context:request_prepared":
            found[record.position] = view
    return found


def _lending(
    records: list[Record], views: dict[int, ViewState], sink: MetricsSink
) -> Callable[[], None]:
    hooks = Hooks()
    sinks = Sinks([sink], hooks)

    def publish() -> None:
        for record in records:
            view = views.get(record.position)
            if view is not None:
                sinks.lend(record.stream, view)
            hooks.publish(record)

    return publish


def _sent_bare(tracer: Any, spans: list[Span]) -> None:
    for span in spans:
        _bare(tracer, span)


def _bare(tracer: Any, span: Span) -> None:
    links = [
        Link(SpanContext(int(one.trace_id, 16), int(one.span_id, 16), False), one.attributes)
        for one in span.links
    ]
    sent = tracer.start_span(
        span.name,
        kind=_KINDS[span.kind],
        attributes=span.attributes,
        links=links,
        start_time=span.start,
    )
    for event in span.events:
        sent.add_event(event.name, event.attributes, event.time)
    if span.status == "error":
        sent.set_status(Status(StatusCode.ERROR, span.message))
    sent.end(span.end)


def _cpu(samples: Samples, name: str, work: Callable[[], Any]) -> None:
    """Time of this thread's processor: what the event loop loses.

    What lies in memory before is kept out of the collector's way: how much that is, is the
    benchmark's doing.
    """
    gc.collect()
    gc.freeze()
    began = time.thread_time()
    work()
    samples.add(name, time.thread_time() - began)


# -- from the log --------------------------------------------------------------------------------


async def _again(place: Place, repeats: int) -> list[Row]:
    path = place.path("again.db")
    async with eventctx.open(path) as engine:
        await session(await engine.session("s", max_tokens=8_000), place.count(2_000, 200))
    samples = Samples()
    async with eventctx.open(path) as engine:
        of = Resource({})
        ended = [DEFAULT.span(span) async for span in tracing.spans(engine.store, "s")]
        for _ in range(repeats):
            gc.collect()
            with samples.step(["file"]), tempfile.TemporaryFile() as file:
                output = OtlpFile(Path("file"), file, {})
                await _sent(engine, output.put)

            with samples.step(["otlp"]):
                await _sent(engine, lambda batch: _encoded(batch, of))

            made = [readable(span, of) for span in ended]
            with samples.step(["encode"]):
                for start in range(0, len(made), BATCH):
                    encode_spans(made[start : start + BATCH]).SerializeToString()
    count = len(ended)
    return [
        Row(
            figure=FIGURE, name="from the log to a file", unit="spans/s",
            value=count / samples.median("file"), limit=40_000, better="more",
            note=f"{count:,} spans of one session, OTLP JSON", cpu=samples.cpu("file", count),
        ),
        Row(
            figure=FIGURE, name="from the log to OTLP", unit="µs",
            value=samples.micro("otlp") / count, against="encoding alone, per span",
            floor=samples.micro("encode") / count, limit=1.5,
            cpu=samples.cpu("otlp", count), floor_cpu=samples.cpu("encode", count),
        ),
    ]  # fmt: skip


async def _sent(engine: eventctx.Engine, put: Callable[[list[Span]], Any]) -> None:
    batch: list[Span] = []
    async for span in tracing.spans(engine.store, "s"):
        batch.append(DEFAULT.span(span))
        if len(batch) == BATCH:
            await put(batch)
            batch = []
    await put(batch)


async def _encoded(batch: list[Span], of: Resource) -> None:
    encode_spans([readable(span, of) for span in batch]).SerializeToString()


# -- the agent's turn ----------------------------------------------------------------------------


async def _turns(repeats: int) -> Row:
    samples = Samples()
    for number in range(repeats):
        await _turn(samples, "none", number, [])
        provider = _provider()
        meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
        configure_logging(file=io.BytesIO())
        sinks = [LogSink(), TraceSink(provider), MetricsSink(meters)]
        await _turn(samples, "all", number, sinks)
        structlog.reset_defaults()
        await asyncio.to_thread(provider.shutdown)
        meters.shutdown()
    return Row(
        figure=FIGURE, name="a turn with every sink", unit="ms", value=samples.milli("all"),
        against="the same with none", floor=samples.milli("none"), limit=1.05,
        note="ten iterations of a model that takes 20 ms, and a tool",
        cpu=samples.cpu("all"), floor_cpu=samples.cpu("none"),
    )  # fmt: skip


async def _turn(samples: Samples, name: str, number: int, sinks: list[Any]) -> None:
    async with eventctx.open(sinks=sinks) as engine:
        ctx = await engine.session("s", max_tokens=8_000)
        gc.collect()
        await samples.time(name, lambda: session(ctx, 10, 0.02))
