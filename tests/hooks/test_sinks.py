"""Log lines and spans of a live session, end to end: all five ids, and equal to the log's own."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.hooks.handlers import CALLING, PerSession, new_number
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.trace import TraceSink
from eventctx.projections.metrics.fold import fold as measured
from eventctx.projections.trace.fold import fold as fold_spans
from eventctx.projections.trace.semconv import CONTENT
from tests.hooks.given import call_model
from tests.hooks.measured import OPERATIONAL, Gathered, exporting, summed
from tests.sessions import user


async def test_a_turn_joins_the_hosts_trace_and_foreign_spans_nest_in_a_provider_call() -> None:
    provider, exporter = exporting()
    tracer, sink = provider.get_tracer("host"), TraceSink(provider)
    async with eventctx.open(current_span=sink) as engine:
        engine.on("*", sink)
        ctx = await engine.session("s")
        with tracer.start_as_current_span("request"):
            async with ctx.turn() as turn, turn.iteration() as cycle, cycle.provider_call("m"):
                tracer.start_span("http").end()
        await ctx.close()
        await engine.hooks.drain()
    spans: dict[str, Any] = {span.name: span for span in exporter.get_finished_spans()}
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert spans["http"].parent.span_id == spans["chat m"].context.span_id
    assert spans["invoke_agent"].parent.span_id == spans["request"].context.span_id


async def test_sessions_of_one_name_in_two_stores_are_told_apart_by_the_sinks_they_share() -> None:
    (provider, exporter), gathered = exporting(), Gathered()
    sinks = [TraceSink(provider, content=True), MetricsSink(gathered.provider)]

    async def work(engine: eventctx.Engine, customer: str) -> list[eventctx.Record]:
        ctx = await engine.session("main", max_tokens=1_500)
        for number in range(3):
            async with ctx.turn(f"{customer}-{number}") as turn, turn.iteration() as cycle:
                text = f"I am {customer}. " * (5 if customer == "ann" else 250)
                await ctx.add_message(user(text))
                await ctx.get_messages_for_request(model=customer)
                await asyncio.sleep(0.001)
                async with cycle.provider_call(customer):
                    await asyncio.sleep(0.001)
        return [record async for record in engine.records("main")]

    async with eventctx.open(sinks=sinks) as one, eventctx.open(sinks=sinks) as other:
        logs = await asyncio.gather(work(one, "ann"), work(other, "bob"))
    sent = {f"{one.context.span_id:016x}": one for one in exporter.get_finished_spans()}
    assert {
        key: {name: value for name, value in one.attributes.items() if name not in CONTENT}
        for key, one in sent.items()
    } == {span.span_id: span.attributes for records in logs for span in fold_spans(records)}
    assert any(one.name.startswith("compact") for one in sent.values())
    for customer, stranger in (("ann", "bob"), ("bob", "ann")):
        mine = [str(one.attributes) for one in sent.values() if one.name == f"chat {customer}"]
        assert [f"I am {customer}" in text for text in mine] == [True] * 3
        assert not any(f"I am {stranger}" in text for text in mine)
    expected = summed([one for records in logs for one in measured(records)])
    points = gathered.points()
    assert {key: one for key, one in points.items() if key[0] not in OPERATIONAL} == expected


def outcomes(exporter: InMemorySpanExporter) -> list[tuple[str, str]]:
    """Of every span that was sent, its turn and outcome."""
    sent = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    return [(str(one["eventctx.turn.id"]), str(one["eventctx.outcome"])) for one in sent]


async def test_an_engine_that_closes_sends_what_waits_but_no_open_turn_though_others_go_on() -> (
    None
):
    provider, exporter = exporting()
    sink = TraceSink(provider)
    async with eventctx.open(sinks=[sink]) as stays:
        ctx = await stays.session("s")
        async with ctx.turn("stays"):
            async with eventctx.open(sinks=[sink]) as goes:
                left = (await goes.session("s")).turn("goes")
                turn = await left.__aenter__()
                async with turn.iteration() as cycle:
                    await call_model(cycle)  # its usage may still come
                assert not exporter.get_finished_spans()
            (gone,) = exporter.get_finished_spans()
            assert (gone.name, outcomes(exporter)) == ("chat m", [("goes", "ok")])
            await left.__aexit__(None, None, None)
    assert outcomes(exporter) == [("goes", "ok"), ("stays", "ok")]


@pytest.mark.slow
async def test_a_turn_that_one_engine_leaves_open_and_the_next_one_ends_has_one_root(
    tmp_path: Path,
) -> None:
    provider, exporter = exporting()

    async def until_closed() -> None:
        async with eventctx.open(tmp_path / "s.db", sinks=[TraceSink(provider)]) as engine:
            await (await engine.session("s")).turn("left").__aenter__()

    await until_closed()
    gc.collect()  # a turn that somebody still holds may go on
    async with eventctx.open(tmp_path / "s.db", sinks=[TraceSink(provider)]) as engine:
        ctx = await engine.session("s")
        async with ctx.turn("next"):
            pass
    assert outcomes(exporter) == [("left", "lost"), ("next", "ok")]


class CatchingUp:
    """A sink that folds, and remembers in which order it was called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, record: eventctx.Record) -> None:
        self.called.append(record.type)

    def history(self) -> str:
        return "records"

    def resume(self, records: Any) -> None:
        self.called.append("resume")


async def test_a_session_that_many_tasks_open_at_once_is_caught_up_with_once(
    tmp_path: Path,
) -> None:
    async def work(engine: eventctx.Engine) -> eventctx.Context:
        ctx = await engine.session("s")
        await ctx.add_message(user("x"))
        return ctx

    async with eventctx.open(tmp_path / "s.db") as engine:
        await work(engine)
    sink = CatchingUp()
    async with eventctx.open(tmp_path / "s.db", sinks=[sink]) as engine:
        first, given_up, *rest = [asyncio.create_task(work(engine)) for _ in range(5)]
        await asyncio.sleep(0)
        given_up.cancel()
        contexts = {id(ctx) for ctx in await asyncio.gather(first, *rest)}
    assert len(contexts) == 1
    assert sink.called == ["resume", *["context:message_added"] * 4]


async def test_a_sink_hears_how_long_each_append_took_that_somebody_waited_for() -> None:
    class Timed:
        def __init__(self) -> None:
            self.appends: list[tuple[float, int]] = []

        def __call__(self, record: eventctx.Record) -> None:
            pass

        def appended(self, seconds: float, records: int) -> None:
            self.appends.append((seconds, records))
            raise RuntimeError("a sink's bug")

    sink = Timed()
    async with eventctx.open(sinks=[sink]) as engine:
        ctx = await engine.session("s", max_tokens=400)
        async with ctx.turn() as turn:  # waited for, as its number must be right
            for number in range(6):
                await ctx.add_message({"role": "user", "content": f"{number} " + "x" * 200})
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()  # a compaction and the request: one append
                async with cycle.provider_call("m"):  # nobody waits for these two
                    pass
        errors = engine.hooks.stats().errors
    assert [records for _, records in sink.appends] == [1, 1, *[1] * 6, 3]
    assert all(seconds > 0 for seconds, _ in sink.appends)
    assert list(errors.values()) == [len(sink.appends)]


async def test_a_turn_that_another_process_is_in_is_not_sent_by_one_that_only_looked_in(
    tmp_path: Path,
) -> None:
    (ours, one), (theirs, other) = exporting(), exporting()
    async with eventctx.open(tmp_path / "s.db", sinks=[TraceSink(ours)]) as engine:
        ctx = await engine.session("s")
        other_engine = eventctx.open(tmp_path / "s.db", sinks=[TraceSink(theirs)])
        async with ctx.turn(), other_engine as second:
            await (await second.session("s")).add_message(user("hello"))
    sent = [[span.name for span in seen.get_finished_spans()] for seen in (one, other)]
    assert sent == [["invoke_agent"], []]


# -- states by session and registry ----------------------------------------------------------------


def test_a_state_that_nobody_kept_is_everybodys_until_one_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states, (one, two) = PerSession[str](4), (new_number(), new_number())
    assert states.keep("s", "history") is None
    for number in (one, two):
        monkeypatch.setattr(CALLING, "number", number)
        assert states.get("s") == "history"
    states.keep("s", "two's")
    assert states.get("s") == "two's"
    monkeypatch.setattr(CALLING, "number", one)
    assert states.get("s") is None


def test_the_least_recently_kept_goes_first_and_is_returned() -> None:
    states = PerSession[str](2)
    assert [states.keep(name, name) for name in ("a", "b", "a")] == [None, None, None]
    assert states.keep("c", "c") == "b"
    assert [states.get(name) for name in ("a", "b", "c")] == ["a", None, "c"]
