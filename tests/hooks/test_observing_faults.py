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
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.hooks.counting import CountingExporter, configure_tracing
from eventctx.hooks.log import LogSink, configure_logging
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import Sinks
from eventctx.hooks.trace import TraceSink
from tests.hooks.measured import exporting
from tests.hooks.observing import SPANS, Case, agent, logged, lost, shown, turning
from tests.hooks.observing import receiver as receiver
from tests.services.receiver import Accept, Answer, CloseConnection, Hang, Receiver, Refuse

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


ANSWERS = [Refuse(503), Refuse(429, 1), Refuse(400), CloseConnection(), Hang(60)]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("answer", [None, *ANSWERS], ids=str)
async def test_a_collector_that_is_down_errs_or_hangs_is_not_noticed_and_its_spans_are_counted(
    case: Case, receiver: Receiver, answer: Answer | None
) -> None:
    if answer is None:
        receiver.stop()
    else:
        receiver.always(answer)
    found = await case(configure_tracing(receiver.http))
    assert found.keys() == {(COUNTING, "dropped")}
    assert found[COUNTING, "dropped"] >= SPANS
    assert bool(receiver.exports) is (answer is not None), "it was asked"
    assert receiver.spans == ()


async def test_the_loop_turns_while_the_last_spans_are_sent(case: Case, receiver: Receiver) -> None:
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


def bug(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a bug of the host's")


async def test_a_sampler_a_provider_or_a_processor_that_raises_is_counted(
    case: Case, tmp_path: Path
) -> None:
    sampler: Any = SimpleNamespace(should_sample=bug, get_description=lambda: "bad")
    provider, exporter = exporting(sampler=sampler)
    found = await case(TraceSink(provider))
    assert found.keys() == {(TRACE, "error")}
    assert found[TRACE, "error"] >= SPANS
    assert exporter.get_finished_spans() == ()
    bad: Any = SimpleNamespace(get_tracer=bug, get_meter=bug)
    other = Case(tmp_path / "other.db", case.expected)
    found = await other(TraceSink(bad), MetricsSink(bad))
    assert found.keys() == {(TRACE, "error"), ("eventctx.hooks.metrics.MetricsSink", "error")}
    async with eventctx.open(other.store, sinks=[TraceSink(bad)]) as engine:
        ctx = await engine.session("s", max_tokens=2_000)  # asks the sinks what they need
        await ctx.add_message({"role": "user", "content": "again"})
    provider, counting = TracerProvider(), CountingExporter(InMemorySpanExporter())
    bad = SpanProcessor()
    bad.on_end = bad.force_flush = bug
    provider.add_span_processor(bad)
    provider.add_span_processor(SimpleSpanProcessor(counting))
    third = Case(tmp_path / "third.db", case.expected)
    found = await third(TraceSink(provider, exporter=counting))
    spans = found[COUNTING, "dropped"]
    assert spans >= SPANS
    assert found == {(TRACE, "error"): spans + 1, (COUNTING, "dropped"): spans}  # + the flush


# -- handlers ------------------------------------------------------------------------------------


def raises(record: eventctx.Record) -> None:
    raise RuntimeError("a handler's bug")


def cancels(record: eventctx.Record) -> None:
    raise asyncio.CancelledError


async def raises_later(record: eventctx.Record) -> None:
    await asyncio.sleep(0)
    raises(record)


async def cancels_later(record: eventctx.Record) -> None:
    await asyncio.sleep(0)
    cancels(record)


async def is_cancelled(record: eventctx.Record) -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


async def hangs(record: eventctx.Record) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "handler", [raises, cancels, raises_later, cancels_later, is_cancelled, hangs]
)
async def test_a_handler_that_fails_or_hangs_is_counted_and_others_hear_all(
    case: Case, handler: Any
) -> None:
    heard: list[str] = []

    def prepare(engine: eventctx.Engine) -> None:
        engine.on("tool:post", handler)
        engine.on("tool:post", lambda record: heard.append(record.type))

    found = await case(prepare=prepare, hooks=Hooks(handler_timeout=0.05))
    assert len(heard) == 6
    assert found == {(f"{__name__}.{handler.__qualname__}", "error"): 6}


@pytest.mark.slow
async def test_a_handler_that_will_not_be_cancelled_is_counted_when_the_engine_closes(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hooks.close, "__defaults__", (0.2,))
    free = asyncio.Event()

    async def clings(record: eventctx.Record) -> None:
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()

    hooks = Hooks(handler_timeout=0.2)
    found = await case(prepare=lambda engine: engine.on("tool:post", clings), hooks=hooks)
    free.set()
    await asyncio.sleep(0)
    name = f"{__name__}.{clings.__qualname__}"
    assert found == {(name, "error"): 1, (name, "dropped"): 5}


async def test_an_interceptor_that_fails_while_logging_fails_too_has_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.Handler()
    log.emit = bug  # type: ignore[method-assign]
    monkeypatch.setattr(logging.getLogger("eventctx.hooks"), "handlers", [log])
    async with eventctx.open(tmp_path / "s.db") as engine:
        engine.intercept("context:pre_compact", bug)
        ctx = await engine.session("s", max_tokens=2_000)
        await agent(ctx)
        await ctx.compact()
        failed = sum(engine.interceptors.errors.values())
    assert failed >= 1
    losses = await asyncio.to_thread(shown, tmp_path / "s.db")
    assert losses == {(f"{__name__}.bug", "error"): failed}


async def test_a_sink_that_hangs_at_the_end_is_left_to_itself_and_counted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
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
@pytest.mark.parametrize("anew", [False, True])
async def test_a_stream_that_is_closed_under_a_log_is_counted_by_line_but_not_where_it_has_another(
    case: Case, anew: bool
) -> None:
    old, new = io.BytesIO(), io.BytesIO()
    configure_logging(json=True, level="debug", file=old)
    closed: list[int] = []

    def prepare(engine: eventctx.Engine) -> None:
        @engine.on("prompt:complete", priority=99)
        def close(record: eventctx.Record) -> None:
            if anew and not closed:
                configure_logging(json=True, level="debug", file=new)
            closed.append(record.position)
            old.close()

    found = await case(LogSink(), prepare=prepare)
    async with eventctx.open(case.store, create=False) as engine:
        (info,) = await engine.sessions()
    left = info.head - closed[0]
    assert found == ({} if anew else {(LOG, "error"): left})
    assert len(new.getvalue().splitlines()) == (left if anew else 0)


# -- values of 1 MB ------------------------------------------------------------------------------

BIG = "a word of it " * 80_000


@pytest.mark.usefixtures("_structlog_as_it_was")
@pytest.mark.parametrize("content", [False, True])
async def test_values_of_a_megabyte_cost_no_loss_and_are_cut_in_what_leaves(
    receiver: Receiver, tmp_path: Path, content: bool
) -> None:
    file, store, hooks = io.BytesIO(), tmp_path / "s.db", Hooks()
    configure_logging(json=True, level="debug", file=file)
    provider, counting = TracerProvider(), CountingExporter(InMemorySpanExporter())
    provider.add_span_processor(SimpleSpanProcessor(counting))
    sent = configure_tracing(receiver.http)
    traces = [TraceSink(provider, content=content, exporter=counting), sent]
    sinks = [LogSink(content=content), MetricsSink(MeterProvider()), *traces]
    async with turning(), eventctx.open(store, sinks=sinks, hooks=hooks) as engine:
        engine.intercept("context:pre_compact", lambda _: eventctx.Verdict(veto=BIG))
        ctx = await engine.session("s", max_tokens=1_000_000)
        async with ctx.turn(agent="coder") as turn, turn.iteration() as cycle:
            await ctx.add_message({"role": "user", "content": BIG})
            assert (await ctx.get_messages_for_request())[0]["content"] == BIG
            for work in (cycle.provider_call("m"), cycle.tool_call(BIG, "c1")):
                with contextlib.suppress(RuntimeError):
                    async with work:
                        raise RuntimeError(BIG)
            await ctx.compact(reason=BIG)
    assert lost(hooks) == await asyncio.to_thread(shown, store) == {}
    assert len(receiver.spans) >= 4
    limit = 100_000 if content else 10_000
    for line in file.getvalue().splitlines():
        assert len(line) < limit
    for span in receiver.spans:
        assert len(span.name) + sum(len(str(value)) for value in span.attributes.values()) < limit
