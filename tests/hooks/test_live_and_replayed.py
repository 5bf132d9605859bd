"""Live equals replayed: what the three sinks emitted is what their folds make of the log.

And what sinks of a live session hear, send, and forget, when engines share them or are closed.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.hooks.handlers import CALLING, PerSession, new_number
from eventctx.hooks.log import LogSink, lines
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.redact import DEFAULT
from eventctx.hooks.trace import TraceSink
from eventctx.log.record import Record
from eventctx.projections.metrics.fold import fold as measured
from eventctx.projections.trace.fold import SessionTrace
from eventctx.projections.trace.fold import fold as fold_spans
from eventctx.projections.trace.semconv import CONTENT
from eventctx.projections.trace.spans import Span
from eventctx.projections.view import request_view
from eventctx.projections.view.state import ViewState
from tests.hooks.given import call_model, recorded
from tests.hooks.measured import OPERATIONAL, Gathered, exporting, summed
from tests.sessions import tool_round, user

SECRET = "sk-ant-api03-" + "a1B2" * 12


class Watched:
    def __init__(self, *, content: bool) -> None:
        (provider, self.exporter), self.gathered = exporting(), Gathered()
        metrics = MetricsSink(self.gathered.provider)
        self.sinks = [LogSink(content=content), TraceSink(provider, content=content), metrics]

    def spans(self, session: str) -> dict[str, dict[str, Any]]:
        spans = [as_sent(one) for one in self.exporter.get_finished_spans()]
        return {one.pop("id"): one for one in spans if one["attributes"]["session.id"] == session}


def as_sent(one: ReadableSpan) -> dict[str, Any]:
    return {
        "id": f"{one.context.span_id:016x}",
        "name": one.name,
        "trace": f"{one.context.trace_id:032x}",
        "parent": None if one.parent is None else f"{one.parent.span_id:016x}",
        "times": (one.start_time, one.end_time),
        "status": (one.status.status_code.name.lower(), one.status.description),
        "attributes": dict(one.attributes),
        "events": [(event.name, event.timestamp, dict(event.attributes)) for event in one.events],
        "links": [
            (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}", dict(link.attributes))
            for link in one.links
        ],
    }


def as_folded(one: Span) -> dict[str, Any]:
    return {
        "name": one.name,
        "trace": one.trace_id,
        "parent": one.parent_span_id,
        "times": (one.start, one.end),
        "status": (one.status, one.message if one.status == "error" else None),
        "attributes": dict(one.attributes),
        "events": [(event.name, event.time, dict(event.attributes)) for event in one.events],
        "links": [(link.trace_id, link.span_id, dict(link.attributes)) for link in one.links],
    }


def folded(records: list[Record], *, content: bool) -> dict[str, dict[str, Any]]:
    state = SessionTrace.start(DEFAULT.text if content else None)
    found: list[Span] = []
    for record in records:
        state = state.after(record)
        found = [] if record.type == "session:fork" else [*found, *state.finished]
    found += state.unfinished()
    return {one.span_id: as_folded(DEFAULT.span(one)) for one in found}


async def worked(ctx: eventctx.Context, first: int, turns: int) -> None:
    """Turns with compactions, parallel tools of which one fails, and secrets in what is said."""
    for number in range(first, first + turns):
        async with ctx.turn(f"turn-{number}", agent="coder") as turn:
            await ctx.add_message(user(f"Task {number}: {SECRET}"))
            for step in range(4):
                async with turn.iteration() as cycle:
                    await ctx.get_messages_for_request(model="m")
                    async with cycle.provider_call("m", "acme") as call:
                        if step % 2:
                            await call.usage(900 + step, 20, cache_read=100)
                    rounds = [tool_round(100 * number + 10 * step + at, 300) for at in range(3)]
                    firsts = [[message["content"][0] for message in both] for both in rounds]
                    uses, results = map(list, zip(*firsts, strict=True))
                    await ctx.add_message({"role": "assistant", "content": uses})
                    work = [used(cycle, use["id"]) for use in uses]
                    await asyncio.gather(*work, return_exceptions=True)
                    await ctx.add_message({"role": "user", "content": results})


async def used(cycle: eventctx.Iteration, key: str) -> None:
    async with cycle.tool_call("r", key):
        await asyncio.sleep(0)
        if key.endswith("2"):
            raise OSError(f"denied: {SECRET}")


async def cancelled(ctx: eventctx.Context) -> None:
    async with ctx.turn("cancelled") as turn, turn.iteration() as cycle:
        await ctx.get_messages_for_request()
        async with cycle.provider_call("m"):
            raise asyncio.CancelledError


@pytest.mark.slow
@pytest.mark.parametrize("content", [False, True])
async def test_lines_spans_and_metrics_equal_those_of_the_log_also_behind_a_restart_and_a_fork(
    tmp_path: Path, content: bool
) -> None:
    store = tmp_path / "s.db"
    first, second = Watched(content=content), Watched(content=content)
    with structlog.testing.capture_logs() as captured:
        async with eventctx.open(store, sinks=first.sinks) as engine:
            ctx = await engine.session("s", max_tokens=1_500)
            await worked(ctx, 0, 2)
            with pytest.raises(asyncio.CancelledError):
                await cancelled(ctx)
        async with eventctx.open(store, sinks=second.sinks) as engine:
            ctx = await engine.session("s", max_tokens=1_500)
            await worked(ctx, 2, 2)
            info = await engine.store.head("s")
            await engine.fork("s", info.head, "child")
            await worked(await engine.session("child", max_tokens=1_500), 4, 1)
    async with eventctx.open(store, create=False) as engine:
        log, childs = await recorded(engine, "s"), await recorded(engine, "child")
    own = [record for record in childs if record.position > info.head]

    for entry in captured:
        entry.pop("log_level")
    for name, records in (("s", log), ("child", own)):
        written = [entry for entry in captured if entry["session_id"] == name]
        assert written == list(lines(records, content=content))
    assert SECRET not in str(captured)

    whole = folded(log, content=content)
    live, child = first.spans("s") | second.spans("s"), second.spans("child")
    assert (live, child) == (whole, folded(childs, content=content))
    sent = [*live.values(), *child.values()]
    assert {entry["trace_id"] for entry in captured} == {None, *(one["trace"] for one in sent)}
    attributes = [span["attributes"] for span in whole.values()]
    assert {one["eventctx.outcome"] for one in attributes} >= {"ok", "error", "cancelled"}
    assert sum(span["name"] == "compact workset" for span in whole.values()) >= 3
    assert any("gen_ai.input.messages" in one for one in attributes) is content
    assert SECRET not in str(whole)

    points = [watched.gathered.points() for watched in (first, second)]
    expected = summed([*measured(log), *measured(childs)])
    for key, point in expected.items():
        both = [one[key] for one in points if key in one]
        assert sum(one["sum"] for one in both) == pytest.approx(point["sum"])
        if "buckets" in point:
            counts = zip(*[one["buckets"] for one in both], strict=True)
            assert tuple(map(sum, counts)) == point["buckets"]
    told = {key for one in points for key in one if key[0] not in OPERATIONAL}
    assert told == expected.keys()


MODELS = ("claude-sonnet-4", "gpt-5", None)


class Borrower:
    """A sink that keeps the entries of the views it was lent, by their positions."""

    def __init__(self) -> None:
        self.lent: dict[int, Any] = {}

    def __call__(self, record: Any) -> None: ...

    def lend(self, session_id: str, view: ViewState) -> None:
        self.lent[view.position] = view.layout.entries


async def played(ctx: eventctx.Context) -> None:
    """Requests of two families of models, in one append with their call or not; compactions."""
    for number in range(12):
        async with ctx.turn(f"turn-{number}") as turn, turn.iteration() as cycle:
            await ctx.add_message(user(f"go {number} " + "word " * 90))
            call = cycle.provider_call(MODELS[number % 2])
            at_once: Any = {"call": call} if number % 4 < 2 else {}
            await ctx.get_messages_for_request(model=MODELS[number % 3], **at_once)
            async with call:
                await call.usage(100, 20)
            await ctx.add_message({"role": "assistant", "content": "done"})
            if number == 7:
                await ctx.clear()


async def test_measurements_by_lent_views_are_those_of_the_log() -> None:
    gathered, borrower = Gathered(), Borrower()
    async with eventctx.open(sinks=[MetricsSink(gathered.provider), borrower]) as engine:
        await played(await engine.session("s", max_tokens=800))
        records = [record async for record in engine.records("s")]
    expected = summed(measured(records))
    names = {"eventctx.request.prefix.reused", "eventctx.compactions"}
    assert {key[0] for key in expected} >= names
    points = gathered.points()
    assert {key: one for key, one in points.items() if key[0] not in OPERATIONAL} == expected
    view, folded = request_view.initial(), {}
    for record in records:
        view = request_view.evolve(view, record)
        folded[record.position] = view.layout.entries()
    assert borrower.lent
    for position, entries in borrower.lent.items():
        assert entries() == folded[position]


# -- sinks of a live session -----------------------------------------------------------------------


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
    sent = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    return [(str(one["eventctx.turn.id"]), str(one["eventctx.outcome"])) for one in sent]


async def test_an_engine_that_closes_sends_what_waits_but_no_open_turn_of_others() -> None:
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
async def test_a_turn_that_one_engine_leaves_and_the_next_one_ends_is_one(tmp_path: Path) -> None:
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


async def test_a_session_that_many_tasks_open_is_caught_up_with_once(tmp_path: Path) -> None:
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


async def test_a_turn_of_another_process_is_not_sent_by_one_that_looked_in(tmp_path: Path) -> None:
    (ours, one), (theirs, other) = exporting(), exporting()
    async with eventctx.open(tmp_path / "s.db", sinks=[TraceSink(ours)]) as engine:
        ctx = await engine.session("s")
        other_engine = eventctx.open(tmp_path / "s.db", sinks=[TraceSink(theirs)])
        async with ctx.turn(), other_engine as second:
            await (await second.session("s")).add_message(user("hello"))
    sent = [[span.name for span in seen.get_finished_spans()] for seen in (one, other)]
    assert sent == [["invoke_agent"], []]


# -- states by session and registry ----------------------------------------------------------------


def test_a_state_is_everybodys_at_first_and_the_oldest_goes(
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
    states = PerSession[str](2)
    assert [states.keep(name, name) for name in ("a", "b", "a")] == [None, None, None]
    assert states.keep("c", "c") == "b"
    assert [states.get(name) for name in ("a", "b", "c")] == ["a", None, "c"]
