"""What a killed process left open: the next turn ends it as lost, and only what is so."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.engine import Engine
from eventctx.hooks.trace import TraceSink
from eventctx.log import events
from eventctx.log.codec import decode_event
from eventctx.log.ids import RecordIds
from eventctx.log.record import Record
from eventctx.projections import numbering
from eventctx.projections.numbering import turns
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.fold import fold as spans_of
from eventctx.projections.trace.spans import Span
from eventctx.projections.view import request_view
from eventctx.projections.view.entries import ANSWER_KEPT, CALL_NOT_ENDED
from eventctx.projections.view.state import MAX_UNENDED, presumed_end
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.children import started
from tests.session.given import (
    ASK,
    GO_ON,
    appended,
    killed,
    opened,
    process,
    prove,
    records_of,
    result,
    texts,
    until_tools_run,
)

pytestmark = pytest.mark.slow


def ends(records: list[Record]) -> list[tuple[str, str | None, str]]:
    """Type, turn and status of every end, in order."""
    found = []
    for record in records:
        event = decode_event(record)
        if isinstance(
            event, events.PromptComplete | events.PlanEnd | events.ProviderError | events.ToolError
        ):
            found.append((record.type, record.turn_id, event.status))
        elif isinstance(event, events.ToolPost):
            found.append((record.type, record.turn_id, "ok"))
    return found


async def next_turn(store: MemoryStore, session: str = "s") -> list[tuple[str, str | None, str]]:
    """The ends on record behind a turn t2 of another process."""
    async with process(store) as engine, (await engine.session(session)).turn("t2"):
        pass
    return ends(await records_of(store, session))


async def test_the_next_turn_ends_what_a_killed_process_left_open_before_it_begins() -> None:
    store = await killed()
    async with process(store) as engine:
        ctx = await engine.session("s")
        before = await records_of(store)
        async with ctx.turn("t2"):
            pass
        await ctx.close()
        assert (await engine.verify("s")).ok
    after = (await records_of(store))[len(before) :]
    types = ["tool:error", "prompt:complete", "prompt:submit", "prompt:complete"]
    assert [record.type for record in after] == types
    assert ends(after) == [
        ("tool:error", "t1", "lost"),
        ("prompt:complete", "t1", "lost"),
        ("prompt:complete", "t2", "ok"),
    ]
    tool: Any = decode_event(after[0])
    assert (tool.name, tool.call_id, tool.error_type) == ("read", "b", "ProcessEnded")
    assert "may have done its work" in tool.message
    begun = {one.span_id: one for one in before if one.type in ("tool:pre", "prompt:submit")}
    for lost in after[:2]:  # they stand where their spans began
        first = begun[lost.span_id]
        assert (lost.turn_id, lost.parent_span_id) == (first.turn_id, first.parent_span_id)
        assert lost.iteration == first.iteration


async def test_a_plan_and_a_model_call_are_ended_too_from_the_inside_out() -> None:
    engine, ctx = await opened()

    async def until_killed() -> None:
        turn = ctx.turn("t1")
        await turn.__aenter__()
        cycle = turn.iteration()
        await cycle.__aenter__()
        plan = cycle.plan("outline")
        await plan.__aenter__()
        await plan.provider_call("m", "p").__aenter__()

    await asyncio.create_task(until_killed())
    gc.collect()
    await engine.close_session("s")
    assert (await next_turn(engine.store))[:3] == [
        ("provider:error", "t1", "lost"),
        ("plan:end", "t1", "lost"),
        ("prompt:complete", "t1", "lost"),
    ]


async def test_what_a_living_object_of_this_process_owns_is_not_lost() -> None:
    async with process(store := MemoryStore()) as first:
        host = await until_tools_run(first, "a", "b")
        async with process(store) as second, (await second.session("s")).turn("t2"):
            await host.tool_ended("a")
            await host.tool_ended("b")
            await host.turn_ended()
    assert "lost" not in str(ends(await records_of(store)))


async def test_what_began_after_the_session_was_loaded_is_not_lost_by_a_reload() -> None:
    async with process(store := MemoryStore()) as engine:
        ctx = await engine.session("s")
        await ctx.add_message(ASK)
        await killed(store)  # another process, which this one knows nothing of
        async with ctx.turn("t2"):
            pass
    found = ends(await records_of(store))
    assert found == [("tool:post", "t1", "ok"), ("prompt:complete", "t2", "ok")]


BEGUN = events.PreCompact("budget", "x", 1, tokens=1, messages=1)
TAKEN_OVER = events.SessionTakenOver(source="a.jsonl", format="x")


@pytest.mark.parametrize(
    ("event", "ids", "lost"),
    [
        (events.PlanStart(), RecordIds("t1", "f" * 16), False),
        (BEGUN, RecordIds("t1", "c" * 16), True),
        (TAKEN_OVER, RecordIds(), False),
    ],
    ids=["the turn goes on", "the crash left its compaction open", "it was an imported file's"],
)
async def test_a_turn_that_was_found_open_is_lost_unless_it_goes_on_or_is_a_files(
    event: events.Event, ids: RecordIds, lost: bool
) -> None:
    store = await killed()
    async with process(store) as engine:
        if isinstance(event, events.PlanStart):
            await engine.session("s")
        await appended(store, event, ids)
        host = (await engine.session("s")).following()  # whose turns end those found open as well
        await host.turn_began("t2")
        await host.turn_ended()
    found = ends(await records_of(store))
    assert (("prompt:complete", "t1", "lost") in found) == ("lost" in str(found)) == lost


async def test_a_fork_inherits_no_open_span() -> None:
    store = await killed()
    async with process(store) as engine:
        inherited = await records_of(store)
        await engine.fork("s", inherited[-1].position, "branch")
    found = (await next_turn(store, "branch"))[len(ends(inherited)) :]
    assert found == [("prompt:complete", "t2", "ok")]


async def test_a_real_end_behind_a_presumed_one_is_the_turns_end() -> None:
    async with process(store := MemoryStore()) as engine:
        host = await until_tools_run(engine, "a", "b")
        await (await engine.session("s")).close()  # all of it is in the log now
        state: request_view.ViewState = await fold(store, "s", request_view)
        for span in reversed(state.spans):  # what a process does that cannot see whose they are
            await appended(store, *presumed_end(span))
        await host.tool_ended("a")
        await host.tool_ended("b")
        await host.turn_ended()
        await engine.close_session("s")
        assert (await engine.verify("s")).ok
        found = [status for kind, _, status in ends(await records_of(store))]
        assert found == ["lost", "lost", "lost", "ok", "ok", "ok"]
        (turn,) = turns(await fold(store, "s", numbering))
        records = await records_of(store)
        assert turn.last == records[-1].position
        (span,) = [one for one in spans_of(records) if one.name.startswith("invoke_agent")]
        assert span.attributes[conv.OUTCOME] == "lost"  # it may have been sent: it ends once


async def test_a_live_sink_sends_the_spans_that_the_log_gives() -> None:
    store = await killed()
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    engine = Engine(store, sinks=[TraceSink(provider)])
    async with (await engine.session("s")).turn("t2"):
        pass
    await engine.close_session("s")
    folded = {one.span_id: one for one in spans_of(await records_of(store))}
    sent = {f"{one.context.span_id:016x}": one for one in exporter.get_finished_spans()}
    lost = [one for one in folded.values() if one.attributes[conv.OUTCOME] == "lost"]
    assert [one.name for one in lost] == ["execute_tool read", "invoke_agent"]
    for span in lost:
        live = sent[span.span_id]
        assert (live.start_time, live.end_time) == (span.start, span.end)
        assert not live.status.is_ok and live.attributes == span.attributes


async def test_of_very_many_open_spans_the_turn_and_the_newest_are_known() -> None:
    async with process(store := MemoryStore()) as engine:
        host = (await engine.session("s")).following()
        await host.turn_began("t1")
        await host.iteration_began("p", "m")
        for number in range(MAX_UNENDED + 10):
            await host.tool_began("read", f"c{number}", number)
        await engine.close_session("s")
        del host
    gc.collect()
    lost = [kind for kind, _, status in await next_turn(store) if status == "lost"]
    assert lost == [*["tool:error"] * (MAX_UNENDED - 1), "prompt:complete"]


ROOT = Path(__file__).parents[2]


def program(path: Path) -> AbstractContextManager[subprocess.Popen[Any]]:
    return started(
        [sys.executable, ROOT / "tests" / "programs" / "two_tools.py", path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def statuses(engine: eventctx.Engine) -> list[tuple[str, str]]:
    """Type and status of every end of a tool call or a turn, in order."""
    found = ends([record async for record in engine.records("s")])
    return [(kind, status) for kind, _, status in found if not kind.startswith("provider")]


async def spans(engine: eventctx.Engine) -> dict[str, Span]:
    records = [record async for record in engine.records("s")]
    return {span.name: span for span in spans_of(records) if span.attributes[conv.OUTCOME] != "ok"}


LOST = [("tool:post", "ok"), ("tool:error", "lost"), ("prompt:complete", "lost")]


async def test_what_was_killed_is_lost_and_the_other_tools_answer_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with program(path) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.kill()
        child.wait()
    async with eventctx.open(path) as engine:
        open_ones = [span.attributes[conv.OUTCOME] for span in (await spans(engine)).values()]
        assert set(open_ones) == {"unfinished"}
        silent = [record async for record in engine.records("s")][-1].time
        ctx = await engine.session("s")
        async with ctx.turn("second"):
            await ctx.add_message(GO_ON)
            shown = await ctx.get_messages_for_request()
        await engine.close_session("s")
        quick = result("quick", f"{ANSWER_KEPT}The quick answer.")
        assert shown[2:] == [quick, result("slow", CALL_NOT_ENDED), GO_ON]
        assert await statuses(engine) == [*LOST, ("prompt:complete", "ok")]
        lost = await spans(engine)
        assert lost.keys() == {"execute_tool slow", "invoke_agent"}
        for span in lost.values():
            assert (span.attributes[conv.OUTCOME], span.status) == ("lost", "error")
            assert span.attributes[conv.ERROR_TYPE] == "ProcessEnded"
            assert span.end == silent
        await prove(engine)


async def test_a_process_that_is_alive_after_all_ends_its_turn_itself(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with program(path) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "ready\n"
        async with eventctx.open(path) as engine:
            ctx = await engine.session("s")
            async with ctx.turn("second"):
                await ctx.add_message(GO_ON)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "ended\n"
            assert child.wait() == 0
            second, own = ("prompt:complete", "ok"), ("tool:post", "ok")
            assert await statuses(engine) == [*LOST, second, own, ("prompt:complete", "ok")]
            async with ctx.turn("third"):
                shown = await ctx.get_messages_for_request()
            assert texts(shown)[2:] == ["The quick answer.", "The slow answer.", "Go on."]
            await prove(engine)
