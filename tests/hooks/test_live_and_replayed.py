"""Live equals replayed: what the three sinks emitted is what their folds make of the log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan

import eventctx
from eventctx.hooks.log import LogSink, lines
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.redact import DEFAULT
from eventctx.hooks.trace import TraceSink
from eventctx.log.record import Record
from eventctx.projections.metrics.fold import fold as measured
from eventctx.projections.trace.fold import SessionTrace
from eventctx.projections.trace.spans import Span
from eventctx.projections.view import request_view
from eventctx.projections.view.state import ViewState
from tests.hooks.given import recorded
from tests.hooks.measured import OPERATIONAL, Gathered, exporting, summed
from tests.sessions import tool_round, user

SECRET = "sk-ant-api03-" + "a1B2" * 12


class Watched:
    """The three sinks, and what came out of them."""

    def __init__(self, *, content: bool) -> None:
        (provider, self.exporter), self.gathered = exporting(), Gathered()
        self.sinks = [
            LogSink(content=content),
            TraceSink(provider, content=content),
            MetricsSink(self.gathered.provider),
        ]

    def spans(self, session: str) -> dict[str, dict[str, Any]]:
        return {
            f"{one.context.span_id:016x}": as_sent(one)
            for one in self.exporter.get_finished_spans()
            if one.attributes["session.id"] == session
        }


def as_sent(one: ReadableSpan) -> dict[str, Any]:
    return {
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
                    uses, results = (
                        [m["content"][0] for m in two] for two in zip(*rounds, strict=True)
                    )
                    await ctx.add_message({"role": "assistant", "content": uses})
                    await asyncio.gather(
                        *[used(cycle, use["id"]) for use in uses], return_exceptions=True
                    )
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
    assert {key[0] for key in expected} >= {
        "eventctx.request.prefix.reused",
        "eventctx.compactions",
    }
    points = gathered.points()
    assert {key: one for key, one in points.items() if key[0] not in OPERATIONAL} == expected
    view, folded = request_view.initial(), {}
    for record in records:
        view = request_view.evolve(view, record)
        folded[record.position] = view.layout.entries()
    assert borrower.lent
    for position, entries in borrower.lent.items():
        assert entries() == folded[position]
