"""Compacting on demand, what it leaves in the log, exports, how often, and its one end."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow
from eventctx.log.codec import decode_event
from eventctx.policies.presets import Simple
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.policies.advisers import Paused, Scripted, talk
from tests.sessions import USER, filled, names, tool_round
from tests.transcripts import refusal


def written(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def only(engine: Engine, name: str) -> Any:
    (record,) = [record async for record in engine.records("s") if record.type == name]
    return record


async def test_a_result_tells_what_the_specification_names() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine)
        result = await ctx.compact(reason="before a long task", keep="the file names")
        assert result == result.removed_tokens == result.before_tokens - result.after_tokens > 0
        assert result.removed_messages == result.before_messages - result.after_messages > 0
        assert (result.outcome, result.strategy, result.dry_run) == ("applied", "workset", False)
        began = decode_event(await only(engine, "context:pre_compact"))
        assert (began.reason, began.hint) == ("before a long task", 0)  # type: ignore[union-attr]
        async for record in engine.records("s", bodies=True):
            if record.type == "context:pre_compact":
                assert record.bodies[0].data is not None
                assert json.loads(record.bodies[0].data)["content"] == "the file names"


async def test_what_a_caller_wants_kept_is_no_part_of_any_payload() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine)
        await ctx.compact(keep="my secret")
        async for record in engine.records("s"):
            assert b"my secret" not in record.payload


async def test_another_policy_may_decide_once() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine)
        await ctx.compact(policy=Simple(keep_recent=4))
        # The first message is the latest human one; a round is never cut.
        assert len(await ctx.get_messages_for_request()) == 5
        assert ctx.policy.name == "workset"
        began = decode_event(await only(engine, "context:pre_compact"))
        assert began.settings["keep_recent"] == 4  # type: ignore[union-attr]


async def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine)
        before = await names(engine)
        shown = await ctx.compact(dry_run=True)
        assert await names(engine) == before
        made = await ctx.compact()
        assert (int(shown), shown.plan) == (int(made), made.plan)
        assert (shown.dry_run, made.dry_run) == (True, False)


async def test_with_export_on_compact_the_whole_transcript_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    async with eventctx.open() as engine:
        ctx = await filled(
            engine, max_tokens=4_000, export_on_compact=True, storage_path=str(folder)
        )
        await ctx.get_messages_for_request()
        await ctx.get_messages_for_request()
        (path,) = folder.iterdir()
        position = (await only(engine, "context:post_compact")).position
        assert path.name == f"s-{position}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines == await ctx.get_messages()


async def test_a_compaction_on_demand_is_exported_too(tmp_path: Path) -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, export_on_compact=True, storage_path=str(tmp_path))
        result = await ctx.compact(policy="simple")
    assert written(tmp_path) == [f"s-{result.position}.jsonl"]


async def test_an_export_that_cannot_be_written_does_not_end_the_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    async with eventctx.open() as engine:
        ctx = await filled(
            engine, max_tokens=4_000, export_on_compact=True, storage_path=str(tmp_path / "file")
        )
        with caplog.at_level(logging.WARNING, "eventctx"):
            assert await ctx.get_messages_for_request()
        assert "cannot be written" in caplog.text


@settings(max_examples=some(15, 30), deadline=None)
@given(
    share=st.one_of(st.floats(0.5, 0.8), st.floats(1.05, 3.0)),
    on_threshold=st.floats(0.7, 0.95),
    policy=st.sampled_from(["ladder", "simple", "truncate", "token-budget", "importance"]),
)
def test_a_floor_that_cannot_be_reduced_does_not_compact_again_and_again(
    share: float, on_threshold: float, policy: str
) -> None:
    budget = 10_000

    async def play() -> int:
        engine = Engine(MemoryStore())
        ctx = await engine.session(
            "s",
            policy=policy,
            max_tokens=budget,
            compact_threshold=on_threshold,
            on_overflow="send_floor",
        )
        await ctx.add_message({"role": "system", "content": "x" * int(budget * share * 3.3)})
        await ctx.add_message(USER)
        for number in range(20):
            for message in tool_round(number, 60):
                await ctx.add_message(message)
            await ctx.get_messages_for_request()
        return len((await engine.audit("s")).compactions)

    # 20 rounds of about 130 tokens: 2,600 in all, more than what is left next to the floor.
    assert asyncio.run(play()) <= 3


async def test_a_compaction_that_could_change_nothing_is_recorded_once() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=1_000)
        await ctx.add_message({"role": "user", "content": "x" * 3_100})
        for _ in range(5):
            await ctx.get_messages_for_request()
        (row,) = (await engine.audit("s")).compactions
        assert (row.outcome, row.trigger) == ("skipped", "threshold")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["ladder", "truncate"])
async def test_a_message_of_ten_megabytes_is_held_whole_and_shown_short(policy: str) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy=policy, max_tokens=50_000)
        await ctx.add_message(USER)
        call, done = tool_round(1, 10_000_000)
        await ctx.add_message(call)
        await ctx.add_message(done)
        view = await ctx.get_messages_for_request()
        assert sum(len(json.dumps(message)) for message in view) < 200_000
        assert (await ctx.get_messages())[-1] == done
        await ctx.add_message({"role": "user", "content": "w" * 10_000_000})
        with pytest.raises(ContextOverflow, match="latest human message"):
            await ctx.get_messages_for_request()
        await ctx.add_message({"role": "user", "content": "never mind"})
        view = await ctx.get_messages_for_request()
        assert sum(len(json.dumps(message)) for message in view) < 200_000


@pytest.mark.parametrize(
    "first",
    [
        {"role": "tool", "tool_call_id": "gone", "content": "an orphan"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": []},
        {"role": "assistant", "content": [], "tool_calls": []},
    ],
)
@pytest.mark.parametrize("policy", ["ladder", "simple", "truncate", "token-budget", "importance"])
async def test_an_odd_beginning_is_no_trouble_for_any_policy(
    first: dict[str, Any], policy: str
) -> None:
    twice = [*tool_round(1), tool_round(1)[1], *tool_round(1)]
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy=policy, max_tokens=1_500)
        messages = [first, USER, *twice]
        for number in range(2, 12):
            messages += tool_round(number)
        for message in messages:
            await ctx.add_message(message)
            assert refusal(await ctx.get_messages_for_request()) is None
        assert await ctx.get_messages() == messages
        assert all(row.fallback is None for row in (await engine.audit("s")).compactions)


async def test_no_part_of_a_floor_has_less_than_no_tokens() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=4_000)
        await ctx.add_message({"role": "user", "content": "This is prose. " * 4_000})
        # The size of a shortened message is a bound, and this one's copy is smaller.
        call, done = tool_round(0, 10_000)
        await ctx.add_message(call)
        await ctx.add_message(done)
        with pytest.raises(ContextOverflow, match="open round") as caught:
            await ctx.get_messages_for_request()
    assert "~-" not in str(caught.value)


async def ends(engine: Engine) -> list[int]:
    """How many ends each compaction has that began."""
    found: dict[str | None, int] = {}
    async for record in engine.records("s"):
        if record.type == "context:pre_compact":
            found[record.span_id] = 0
        elif record.type == "context:post_compact":
            found[record.span_id] += 1
    return list(found.values())


async def due(engine: Engine, summarizer: Scripted) -> eventctx.Context:
    ctx = await engine.session(
        "s", policy="summarize", summarizer=summarizer, max_tokens=4_000, adviser_timeout=5
    )
    for message in talk(12):
        await ctx.add_message(message)
    return ctx


async def break_off(ctx: eventctx.Context, request: asyncio.Task[Any]) -> None:
    request.cancel()
    with suppress(asyncio.CancelledError):
        await request
    await ctx.close()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_request_that_is_cancelled_at_any_moment_leaves_one_end(
    store: str, tmp_path: Path
) -> None:
    for steps in range(0, 40, 1 if store == "memory" else some(3, 1)):
        url = "memory://" if store == "memory" else tmp_path / f"{steps}.db"
        async with eventctx.open(url) as engine:
            ctx = await due(engine, Scripted())
            request = asyncio.create_task(ctx.get_messages_for_request())
            for _ in range(steps):
                await asyncio.sleep(0)
            await break_off(ctx, request)
            assert set(await ends(engine)) <= {1}, steps
            assert await ctx.get_messages_for_request()
            assert set(await ends(engine)) <= {1}, steps


async def test_a_request_that_is_cancelled_twice_leaves_one_end() -> None:
    async with eventctx.open() as engine:
        summarizer = Paused()
        ctx = await due(engine, summarizer)
        request = asyncio.create_task(ctx.get_messages_for_request())
        await summarizer.called.wait()
        request.cancel()
        await asyncio.sleep(0)
        await break_off(ctx, request)
        assert [row.outcome for row in (await engine.audit("s")).compactions] == ["cancelled"]


async def test_a_compaction_that_another_process_closed_is_not_closed_again() -> None:
    store = MemoryStore()
    engine = Engine(store)
    summarizer = Paused()
    ctx = await due(engine, summarizer)
    request = asyncio.create_task(ctx.get_messages_for_request())
    await summarizer.called.wait()
    await Engine(store).session("s", policy="workset")
    await break_off(ctx, request)
    assert [row.outcome for row in (await engine.audit("s")).compactions] == ["failed"]


async def test_an_engine_that_closes_while_a_summarizer_works_leaves_an_end() -> None:
    store = MemoryStore()
    summarizer = Paused()
    ctx = await due(Engine(store), summarizer)
    request = asyncio.create_task(ctx.get_messages_for_request())
    await summarizer.called.wait()
    await break_off(ctx, request)
    again = Engine(store)
    await again.session("s", policy="workset")
    assert await ends(again) == [1]
