"""Whatever becomes of those who observe, the agent never notices, and what was lost is shown.

Every fault meets a live engine and a scripted agent. What the agent was sent, and what is in the
log, is the same as without the fault; the loop went on turning; the losses are in the registry's
figures, and after the end in those of ``eventctx stats``.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    SimpleSpanProcessor,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.hooks.counting import CountingExporter, configure_tracing
from eventctx.hooks.log import LogSink, configure_logging
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from tests.hooks.observing import SPANS, Case, agent, logged, lost, shown, turning
from tests.hooks.observing import receiver as receiver
from tests.services.receiver import (
    Accept,
    Answer,
    CloseConnection,
    Hang,
    Receiver,
    Refuse,
)

COUNTING = "eventctx.hooks.counting.CountingExporter"
TRACE = "eventctx.hooks.trace.TraceSink"
LOG = "eventctx.hooks.log.LogSink"


@pytest.fixture
async def expected() -> tuple[list[Any], list[Any]]:
    """What the agent is sent, and what is in the log, where nobody observes."""
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=2_000)
        return await agent(ctx), await logged(engine)


@pytest.fixture
def case(tmp_path: Path, expected: tuple[list[Any], list[Any]]) -> Case:
    return Case(tmp_path / "s.db", expected)


# -- collectors ----------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with little patience, as it is the waiting that takes the time."""
    monkeypatch.setattr("eventctx.hooks.counting.FLUSH_TIMEOUT", 1.0)
    monkeypatch.setattr("eventctx.hooks.trace.FLUSH_TIMEOUT", 1.0)


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.usefixtures("quick")
async def test_a_collector_that_is_down_is_not_noticed_and_its_spans_are_counted(
    case: Case,
) -> None:
    found = await case(configure_tracing(f"http://127.0.0.1:{closed_port()}"))
    assert found.keys() == {(COUNTING, "dropped")}
    assert found[COUNTING, "dropped"] >= SPANS


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "answer", [Refuse(503), Refuse(429, 1), Refuse(400), CloseConnection(), Hang(60)], ids=str
)
async def test_a_collector_that_errs_or_hangs_is_not_noticed_and_its_spans_are_counted(
    case: Case, receiver: Receiver, answer: Answer
) -> None:
    receiver.always(answer)
    found = await case(configure_tracing(receiver.http))
    assert found.keys() == {(COUNTING, "dropped")}
    assert found[COUNTING, "dropped"] >= SPANS
    assert receiver.exports, "it was asked"
    assert receiver.spans == ()


async def test_the_loop_turns_while_the_last_spans_are_on_their_way(
    case: Case, receiver: Receiver
) -> None:
    """Only the loop lets go of the collector, so it has to turn for the spans to arrive."""
    receiver.always(Hang(60))

    async def let_go() -> None:
        await asyncio.to_thread(receiver.wait_for_exports, 1, 60)
        receiver.always(Accept())
        receiver.release()

    going = asyncio.create_task(let_go())
    assert await case(configure_tracing(receiver.http)) == {}
    await going


# -- the host's tracing set-up -------------------------------------------------------------------


class BadProcessor(SpanProcessor):
    """Raises wherever it is asked."""

    def on_end(self, span: ReadableSpan) -> None:
        raise ZeroDivisionError("a processor's bug")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        raise ZeroDivisionError("a processor's bug")


async def test_a_processor_that_raises_is_counted_for_every_span(case: Case) -> None:
    provider, counting = TracerProvider(), CountingExporter(InMemorySpanExporter())
    provider.add_span_processor(BadProcessor())
    provider.add_span_processor(SimpleSpanProcessor(counting))
    found = await case(TraceSink(provider, exporter=counting))
    spans = found[COUNTING, "dropped"]
    assert spans >= SPANS
    assert found == {(TRACE, "error"): spans + 1, (COUNTING, "dropped"): spans}  # + the flush


class BadProvider(TracerProvider):
    """Gives no tracer."""

    def get_tracer(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a provider's bug")


async def test_a_provider_that_raises_does_not_keep_a_session_from_opening(case: Case) -> None:
    provider = BadProvider()
    found = await case(TraceSink(provider))
    assert found.keys() == {(TRACE, "error")}
    async with eventctx.open(case.store, sinks=[TraceSink(provider)]) as engine:
        ctx = await engine.session("s", max_tokens=2_000)  # asks the sinks what they need
        await ctx.add_message({"role": "user", "content": "again"})


# -- handlers ------------------------------------------------------------------------------------


def raises(record: eventctx.Record) -> None:
    raise RuntimeError("a handler's bug")


def cancels(record: eventctx.Record) -> None:
    raise asyncio.CancelledError


async def raises_later(record: eventctx.Record) -> None:
    await asyncio.sleep(0)
    raise RuntimeError("a handler's bug")


async def cancels_later(record: eventctx.Record) -> None:
    await asyncio.sleep(0)
    raise asyncio.CancelledError


async def is_cancelled(record: eventctx.Record) -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


async def hangs(record: eventctx.Record) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "handler", [raises, cancels, raises_later, cancels_later, is_cancelled, hangs]
)
async def test_a_handler_that_raises_hangs_or_is_cancelled_is_counted_and_others_hear_all(
    case: Case, handler: Any
) -> None:
    heard: list[str] = []

    def prepare(engine: eventctx.Engine) -> None:
        engine.on("tool:post", handler)
        engine.on("tool:post", lambda record: heard.append(record.type))

    found = await case(prepare=prepare, hooks=Hooks(handler_timeout=0.05))
    assert len(heard) == 6
    assert found == {(f"{__name__}.{handler.__qualname__}", "error"): 6}


async def test_a_handler_that_will_not_be_cancelled_is_counted_when_the_engine_closes(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = asyncio.Event()

    async def clings(record: eventctx.Record) -> None:
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()

    class Impatient(Hooks):
        async def close(self, timeout: float | None = 0.2) -> None:  # noqa: ASYNC109
            await super().close(timeout)

    def prepare(engine: eventctx.Engine) -> None:
        engine.on("tool:post", clings)

    found = await case(prepare=prepare, hooks=Impatient(handler_timeout=0.2))
    free.set()
    await asyncio.sleep(0)
    name = f"{__name__}.{clings.__qualname__}"
    assert found == {(name, "error"): 1, (name, "dropped"): 5}


async def test_an_interceptor_that_fails_while_logging_fails_too_has_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Objects:
        def __call__(self, compaction: eventctx.CompactionAsked) -> None:
            raise RuntimeError("an interceptor's bug")

    class Breaks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionResetError("a log's bug")

    monkeypatch.setattr(logging.getLogger("eventctx.hooks"), "handlers", [Breaks()])
    async with eventctx.open(tmp_path / "s.db") as engine:
        engine.intercept("context:pre_compact", Objects())
        ctx = await engine.session("s", max_tokens=2_000)
        await agent(ctx)
        await ctx.compact()
        failed = sum(engine.interceptors.errors.values())
    name = f"{__name__}.{Objects.__qualname__}"
    assert failed >= 1
    assert await asyncio.to_thread(shown, tmp_path / "s.db") == {(name, "error"): failed}


async def test_a_sink_that_hangs_at_the_end_is_left_to_itself_and_counted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eventctx.hooks.sinks import Sinks

    monkeypatch.setattr(Sinks.close, "__defaults__", (0.2,))
    free = threading.Event()

    class Clinging:
        def __call__(self, record: eventctx.Record) -> None: ...
        def attach(self, hooks: Hooks) -> None: ...
        def detach(self, hooks: Hooks) -> None:
            free.wait(60)

    found = await case(Clinging())
    free.set()
    assert found == {(f"{__name__}.{Clinging.__qualname__}", "error"): 1}


# -- logs ----------------------------------------------------------------------------------------


@pytest.fixture
def _structlog_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("_structlog_as_it_was")
async def test_a_log_whose_stream_is_closed_under_it_is_counted_by_line(case: Case) -> None:
    file = io.BytesIO()
    configure_logging(json=True, level="debug", file=file)
    lines: list[int] = []

    def prepare(engine: eventctx.Engine) -> None:
        @engine.on("prompt:complete", priority=99)
        def close(record: eventctx.Record) -> None:
            lines.append(record.position)
            file.close()

    found = await case(LogSink(), prepare=prepare)
    last = await records_of(case.store)
    assert found == {(LOG, "error"): last - lines[0]}


@pytest.mark.usefixtures("_structlog_as_it_was")
async def test_a_structlog_that_is_configured_anew_in_mid_run_costs_nothing(case: Case) -> None:
    old, new = io.BytesIO(), io.BytesIO()
    configure_logging(json=True, level="debug", file=old)
    before: list[int] = []

    def prepare(engine: eventctx.Engine) -> None:
        @engine.on("prompt:complete", priority=99)
        def configure(record: eventctx.Record) -> None:
            if not before:
                before.append(record.position + 1)
                configure_logging(json=True, level="debug", file=new)
                old.close()

    assert await case(LogSink(), prepare=prepare) == {}
    assert len(new.getvalue().splitlines()) == await records_of(case.store) + 1 - before[0]


async def records_of(store: Path) -> int:
    """The position of the last record."""
    async with eventctx.open(store, create=False) as engine:
        (info,) = await engine.sessions()
        return info.head


# -- values of 1 MB ------------------------------------------------------------------------------

BIG = "a word of it " * 80_000


def everywhere(receiver: Receiver, content: bool) -> tuple[list[Any], io.BytesIO]:
    file = io.BytesIO()
    configure_logging(json=True, level="debug", file=file)
    provider, counting = TracerProvider(), CountingExporter(InMemorySpanExporter())
    provider.add_span_processor(SimpleSpanProcessor(counting))
    sinks = [
        LogSink(content=content),
        MetricsSink(MeterProvider()),
        TraceSink(provider, content=content, exporter=counting),
        configure_tracing(receiver.http),
    ]
    return sinks, file


@pytest.mark.usefixtures("_structlog_as_it_was")
@pytest.mark.parametrize("content", [False, True])
async def test_values_of_a_megabyte_cost_no_loss_and_are_cut_in_what_leaves(
    receiver: Receiver, tmp_path: Path, content: bool
) -> None:
    sinks, file = everywhere(receiver, content)
    store, hooks = tmp_path / "s.db", Hooks()
    async with turning(), eventctx.open(store, sinks=sinks, hooks=hooks) as engine:

        @engine.intercept("context:pre_compact")
        def objects(compaction: eventctx.CompactionAsked) -> eventctx.Verdict:
            return eventctx.Verdict(veto=BIG)

        ctx = await engine.session("s", max_tokens=1_000_000)
        async with ctx.turn(agent="coder") as turn, turn.iteration() as cycle:
            await ctx.add_message({"role": "user", "content": BIG})
            assert (await ctx.get_messages_for_request())[0]["content"] == BIG
            with contextlib.suppress(RuntimeError):
                async with cycle.provider_call("m"):
                    raise RuntimeError(BIG)
            with contextlib.suppress(RuntimeError):
                async with cycle.tool_call(BIG, "c1"):
                    raise RuntimeError(BIG)
            await ctx.compact(reason=BIG)
    assert lost(hooks) == {}
    assert await asyncio.to_thread(shown, store) == {}
    assert len(receiver.spans) >= 4
    limit = 100_000 if content else 10_000
    for line in file.getvalue().splitlines():
        assert len(line) < limit
    for span in receiver.spans:
        assert len(span.name) + sum(len(str(value)) for value in span.attributes.values()) < limit


class BadSampler:
    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a sampler's bug")

    def get_description(self) -> str:
        return "bad"


async def test_a_sampler_that_raises_is_counted(case: Case) -> None:
    provider, exporter = TracerProvider(sampler=BadSampler()), InMemorySpanExporter()  # type: ignore[arg-type]
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    found = await case(TraceSink(provider))
    assert found.keys() == {(TRACE, "error")}
    assert found[TRACE, "error"] >= SPANS
    assert exporter.get_finished_spans() == ()


async def test_a_meter_provider_that_raises_is_counted(case: Case) -> None:
    class BadMeters(MeterProvider):
        def get_meter(self, *_: Any, **__: Any) -> Any:
            raise ZeroDivisionError("a provider's bug")

    provider = BadMeters()
    found = await case(MetricsSink(provider))
    assert found.keys() <= {("eventctx.hooks.metrics.MetricsSink", "error")}
    assert sum(found.values()) >= 1
    provider.shutdown()
