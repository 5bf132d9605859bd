"""Views that fit: giant and oddly shaped results, floors, limits, and no needless compaction."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx.errors import (
    ContextOverflow,
)
from tests.sessions import USER, tool_round


async def test_an_overflow_leaves_a_trace_in_the_audit_once_for_every_state() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=100)
        await ctx.add_message({"role": "user", "content": "x" * 4_000})
        for _ in range(3):
            with pytest.raises(ContextOverflow):
                await ctx.get_messages_for_request()
        (row,) = (await engine.audit("s")).compactions
        assert row.outcome == "failed"
        assert "latest human message ~1,217" in (row.error or "")


async def test_a_view_on_an_irreducible_floor_is_not_compacted_again_and_again() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=1_000, on_overflow="send_floor")
        await ctx.add_message({"role": "user", "content": "x" * 9_000})
        for _ in range(20):
            await ctx.get_messages_for_request()
        audit = await engine.audit("s")
        assert len(audit.compactions) <= 1
        assert all(row.floor_sent for row in audit.requests)


async def test_a_giant_tool_result_is_short_in_the_view_and_whole_in_the_log() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=50_000)
        await ctx.add_message(USER)
        call, done = tool_round(1, size=600_000)
        await ctx.add_message(call)
        await ctx.add_message(done)
        view = await ctx.get_messages_for_request()
        text = view[-1]["content"][0]["content"]
        assert 10_000 < len(text) < 60_000
        assert "characters left out of message 2" in text
        assert (await ctx.get_messages())[-1] == done
        row = (await engine.audit("s")).requests[-1]
        assert (row.counts.kept, row.counts.shortened) == (2, 1)


MANY = ["ab"] * 10_000


FUNCTION = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
CALL, _ = tool_round(1)
ANSWERS = [
    [{"type": "text", "text": "ab"}] * 10_000,
    MANY,
    {"output": {"lines": MANY}},
    [{"type": "mystery", "payload": MANY}],
]


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        *[
            (CALL, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": content}]})
            for content in ANSWERS
        ],
        ({"role": "assistant", "tool_calls": [FUNCTION]},
         {"role": "tool", "tool_call_id": "c1", "content": {"lines": MANY}}),
        ({"role": "assistant", "tool_calls": [
            {"id": "c1", "tool": "f", "arguments": {"list": MANY}}]},
         {"role": "tool", "tool_call_id": "c1", "content": "done"}),
        ({"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"list": MANY}}]},
         {"role": "tool", "tool_call_id": "c1", "content": "done"}),
    ],
)  # fmt: skip
async def test_arguments_and_results_of_any_shape_fit(
    call: dict[str, Any], answer: dict[str, Any]
) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=10_000)
        for message in (USER, call, answer):
            await ctx.add_message(message)
        await ctx.get_messages_for_request()
        assert (await engine.audit("s")).requests[-1].tokens <= 10_000
        assert (await ctx.get_messages())[-1] == answer


async def test_a_giant_result_beside_a_persons_words_is_shortened_and_the_words_stay() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=10_000)
        call, done = tool_round(1, size=200_000)
        done["content"].append({"type": "text", "text": "stop, please"})
        for message in (USER, call, done):
            await ctx.add_message(message)
        view = await ctx.get_messages_for_request()
        assert view[-1]["content"][1] == {"type": "text", "text": "stop, please"}
        assert len(view[-1]["content"][0]["content"]) < 30_000


async def test_the_limit_on_messages_does_not_compact_at_every_request() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy="simple", max_messages=10)
        for number in range(200):
            role = "assistant" if number else "user"
            await ctx.add_message({"role": role, "content": f"message {number}"})
            assert len(await ctx.get_messages_for_request()) <= 10
        assert len((await engine.audit("s")).compactions) <= 40


async def test_many_abandoned_calls_do_not_cost_what_stays() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy="simple", max_tokens=10_000, keep_recent=200)
        for number in range(300):
            await ctx.add_message(tool_round(number)[0])
        for number in range(40):
            await ctx.add_message({"role": "user", "content": f"question {number} " + "x" * 90})
        view = await ctx.get_messages_for_request()
        assert len([m for m in view if "question" in str(m)]) == 40


async def test_a_budget_that_shrinks_brings_the_view_down_to_its_floor() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=100_000, on_overflow="send_floor")
        await ctx.add_message({"role": "system", "content": "x" * 66_000})
        await ctx.add_message(USER)
        for number in range(60):
            for message in tool_round(number, 4_000):
                await ctx.add_message(message)
        await ctx.get_messages_for_request()
        await ctx.get_messages_for_request(15_000)
        row = (await engine.audit("s")).requests[-1]
        assert row.floor_sent
        assert row.tokens < 23_000


@pytest.mark.parametrize("policy", ["ladder", "simple", "truncate", "importance"])
async def test_a_compaction_for_less_than_what_must_stay_names_the_floor_and_changes_nothing(
    policy: str,
) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy=policy, on_overflow="send_floor")
        await ctx.add_message({"role": "system", "content": "be brief " * 50})
        for number in range(6):
            await ctx.add_message({"role": "user", "content": f"task {number} " * 100})
            for row in tool_round(number + 1, size=2_000):
                await ctx.add_message(row)
        before = [record async for record in engine.store.read("s")]
        for dry_run in (True, False):
            with pytest.raises(ContextOverflow, match="system messages") as caught:
                await ctx.compact(budget=300, dry_run=dry_run)
        with pytest.raises(ContextOverflow):
            await engine.dry_run("s", policy=policy, max_tokens=300)
        overflow = caught.value
        assert [record async for record in engine.store.read("s")] == before
        assert (overflow.budget, overflow.messages) == (300, 4)
        assert f"{overflow.floor} tokens in 4 messages" in str(overflow)
        assert f"nothing was changed; the smallest budget that works is {overflow.floor}" in str(
            overflow
        )
        with pytest.raises(ContextOverflow):
            await ctx.compact(budget=overflow.floor - 1)
        assert [record async for record in engine.store.read("s")] == before
        made = await ctx.compact(budget=overflow.floor)
        assert made.outcome == "applied" and made.after_tokens <= overflow.floor
        assert made.after_messages == 4


async def test_a_budget_that_system_messages_nearly_fill_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=4_000)
        await ctx.add_message({"role": "system", "content": "Be careful. " * 450})
        await ctx.set_system_prompt("Be quick. " * 540)
        for n in range(3):
            await ctx.add_message({"role": "user", "content": f"Go on with {n}."})
            await ctx.get_messages_for_request()
        roomy = await engine.session("roomy", max_tokens=40_000)
        await roomy.add_message({"role": "system", "content": "Be careful. " * 900})
        await roomy.add_message({"role": "user", "content": "Go on."})
        await roomy.get_messages_for_request()
        room = (await engine.audit("s")).little_room
        assert (await engine.audit("roomy")).little_room is None
    (told,) = [one.getMessage() for one in caplog.records if "leaves" in one.getMessage()]
    assert "session s: a budget of 4,000 tokens leaves 7" in told and "raise max_tokens" in told
    assert room is not None and told.endswith(room.sentence)
