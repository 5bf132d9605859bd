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
from eventctx.log.codec import decode_known
from eventctx.policies.presets import Simple
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.policies.advisers import Paused, Scripted, talk
from tests.session.given import opened
from tests.sessions import USER, filled, names, tool_round, user
from tests.transcripts import refusal


async def only(engine: Engine, name: str) -> Any:
    (record,) = [one async for one in engine.records("s", bodies=True) if one.type == name]
    return record


async def test_a_result_tells_what_the_specification_names_and_no_payload_what_is_kept() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine)
    result = await ctx.compact(reason="before a long task", keep="the file names")
    assert result == result.removed_tokens == result.before_tokens - result.after_tokens > 0
    assert result.removed_messages == result.before_messages - result.after_messages > 0
    assert (result.outcome, result.strategy, result.dry_run) == ("applied", "workset", False)
    pre = await only(engine, "context:pre_compact")
    began = decode_known(pre)
    assert (began.reason, began.hint) == ("before a long task", 0)
    assert json.loads(pre.bodies[0].data)["content"] == "the file names"
    assert not [one async for one in engine.records("s") if b"the file names" in one.payload]


async def test_a_dry_run_says_the_same_and_another_policy_may_decide_once() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine)
    before = await names(engine)
    shown = await ctx.compact(policy=Simple(keep_recent=4), dry_run=True)
    assert await names(engine) == before
    made = await ctx.compact(policy=Simple(keep_recent=4))
    assert (int(shown), shown.plan) == (int(made), made.plan)
    assert (shown.dry_run, made.dry_run) == (True, False)
    # The first message is the latest human one; a round is never cut.
    assert len(await ctx.get_messages_for_request()) == 5
    assert ctx.policy.name == "workset"
    assert decode_known(await only(engine, "context:pre_compact")).settings["keep_recent"] == 4


@pytest.mark.parametrize("on_demand", [True, False])
async def test_with_export_on_compact_all_is_written(on_demand: bool, tmp_path: Path) -> None:
    folder, engine = tmp_path / "exports", Engine(MemoryStore())
    limit = 200_000 if on_demand else 4_000
    exports: dict[str, Any] = {"export_on_compact": True, "storage_path": str(folder)}
    ctx = await filled(engine, max_tokens=limit, **exports)
    if on_demand:
        await ctx.compact(policy="simple")
    await ctx.get_messages_for_request()
    await ctx.get_messages_for_request()
    (path,) = folder.iterdir()
    position = (await only(engine, "context:post_compact")).position
    assert path.name == f"s-{position}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == await ctx.get_messages()


async def test_an_export_that_cannot_be_written_does_not_end_the_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    exports: dict[str, Any] = {"export_on_compact": True, "storage_path": str(tmp_path / "file")}
    ctx = await filled(Engine(MemoryStore()), max_tokens=4_000, **exports)
    with caplog.at_level(logging.WARNING, "eventctx"):
        assert await ctx.get_messages_for_request()
    assert "cannot be written" in caplog.text


@settings(max_examples=some(15, 30), deadline=None)
@given(
    share=st.one_of(st.floats(0.5, 0.8), st.floats(1.05, 3.0)),
    on_threshold=st.floats(0.7, 0.95),
    policy=st.sampled_from(["ladder", "simple", "truncate", "token-budget", "importance"]),
)
async def test_a_floor_that_cannot_be_reduced_does_not_compact_again_and_again(
    share: float, on_threshold: float, policy: str
) -> None:
    engine, ctx = await opened(
        {"role": "system", "content": "x" * int(10_000 * share * 3.3)},
        USER,
        policy=policy,
        max_tokens=10_000,
        compact_threshold=on_threshold,
        on_overflow="send_floor",
    )
    for number in range(20):
        await ctx.add_messages(tool_round(number, 60))
        await ctx.get_messages_for_request()
    # 20 rounds of about 130 tokens: 2,600 in all, more than what is left next to the floor.
    assert len((await engine.audit("s")).compactions) <= 3


async def test_a_compaction_that_could_change_nothing_is_recorded_once() -> None:
    engine, ctx = await opened(user("x" * 3_100), max_tokens=1_000)
    for _ in range(5):
        await ctx.get_messages_for_request()
    (row,) = (await engine.audit("s")).compactions
    assert (row.outcome, row.trigger) == ("skipped", "threshold")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["ladder", "truncate"])
async def test_a_message_of_ten_megabytes_is_held_whole_and_shown_short(policy: str) -> None:
    call, done = tool_round(1, 10_000_000)
    _, ctx = await opened(USER, call, done, policy=policy, max_tokens=50_000)
    assert len(json.dumps(await ctx.get_messages_for_request())) < 200_000
    assert (await ctx.get_messages())[-1] == done
    await ctx.add_message(user("w" * 10_000_000))
    with pytest.raises(ContextOverflow, match="latest human message"):
        await ctx.get_messages_for_request()
    await ctx.add_message(user("never mind"))
    assert len(json.dumps(await ctx.get_messages_for_request())) < 200_000


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
async def test_an_odd_beginning_troubles_no_policy(first: dict[str, Any], policy: str) -> None:
    twice = [*tool_round(1), tool_round(1)[1], *tool_round(1)]
    messages = [first, USER, *twice]
    for number in range(2, 12):
        messages += tool_round(number)
    engine, ctx = await opened(policy=policy, max_tokens=1_500)
    for message in messages:
        await ctx.add_message(message)
        assert refusal(await ctx.get_messages_for_request()) is None
    assert await ctx.get_messages() == messages
    assert all(row.fallback is None for row in (await engine.audit("s")).compactions)


async def test_no_part_of_a_floor_has_less_than_no_tokens() -> None:
    # The size of a shortened message is a bound, and the copy of this result is smaller.
    rows = [user("This is prose. " * 4_000), *tool_round(0, 10_000)]
    _, ctx = await opened(*rows, max_tokens=4_000)
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
    await ctx.add_messages(talk(12))
    return ctx


async def break_off(ctx: eventctx.Context, request: asyncio.Task[Any]) -> None:
    request.cancel()
    with suppress(asyncio.CancelledError):
        await request
    await ctx.close()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_request_cancelled_at_any_moment_leaves_one_end(store: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("meanwhile", "outcome"),
    [(None, "cancelled"), ("cancelled", "cancelled"), ("closed by another process", "failed")],
)
async def test_a_request_that_is_broken_off_while_a_summarizer_works_leaves_one_end(
    meanwhile: str | None, outcome: str
) -> None:
    engine, summarizer = Engine(MemoryStore()), Paused()
    ctx = await due(engine, summarizer)
    request = asyncio.create_task(ctx.get_messages_for_request())
    await summarizer.called.wait()
    if meanwhile == "cancelled":
        request.cancel()
        await asyncio.sleep(0)
    elif meanwhile is not None:
        await Engine(engine.store).session("s", policy="workset")
    await break_off(ctx, request)
    await Engine(engine.store).session("s", policy="workset")
    assert await ends(engine) == [1]
    (row,) = (await engine.audit("s")).compactions
    assert (row.outcome, row.strategy) == (outcome, "summarize")
