"""The context manager: the five methods of the contract, turns, pins, and bad input."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventctx
from eventctx.errors import (
    InvalidMessage,
    InvalidSetting,
    StreamNotFound,
)
from eventctx.log import events
from eventctx.log.codec import decode_event
from eventctx.messages.overlap import match_in_order
from eventctx.session.settings import Settings, UnknownSetting
from tests.sessions import USER, filled, names


async def test_what_goes_in_comes_out_with_unknown_keys_and_key_order() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        odd = {"zeta": 1, "role": "user", "content": [{"type": "hologram", "b": 1, "a": None}]}
        await ctx.add_message(odd)
        (back,) = await ctx.get_messages()
        assert back == odd
        assert list(back) == ["zeta", "role", "content"]
        assert await ctx.get_messages_for_request() == [odd]


async def test_a_compaction_changes_the_view_and_never_the_transcript() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, max_tokens=4_000)
        before = await ctx.get_messages()
        view = await ctx.get_messages_for_request()
        assert len(view) < len(before)
        assert await ctx.get_messages() == before
        assert await names(engine) == [
            "session:start",
            *["context:message_added"] * 61,
            "context:pre_compact",
            "context:post_compact",
            "context:request_prepared",
        ]


async def test_clear_empties_the_transcript_and_keeps_history() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, rounds=2)
        await ctx.clear()
        assert await ctx.get_messages() == []
        assert await ctx.get_messages_for_request() == []
        assert await ctx.get_token_count() == 0
        assert len(await engine.transcript("s", at=5)) == 5
        await ctx.add_message(USER)
        assert [m.number for m in await engine.transcript("s")] == [5]


async def test_set_messages_keeps_the_numbers_of_what_it_recognises() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, rounds=2)
        kept = await ctx.get_messages()
        await ctx.set_messages([{"role": "system", "content": "new"}, *kept[:2], *kept[3:], USER])
        assert [m.number for m in await engine.transcript("s")] == [5, 0, 1, 3, 4, 6]
        last = [record async for record in engine.records("s", bodies=True)][-1]
        assert len(last.bodies) == 2
        assert decode_event(last) == events.MessagesSet(order=((5, 5), (0, 1), (3, 4), (6, 6)))


@pytest.mark.slow
async def test_a_set_of_ten_thousand_known_messages_costs_only_the_new_ones() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        messages = [{"role": "user", "content": f"message {n}"} for n in range(10_000)]
        await ctx.set_messages(messages)
        changed = [*messages[:5_000], *({"role": "user", "content": f"n{n}"} for n in range(10))]
        await ctx.set_messages([*changed, *messages[5_000:]])
        last = [record async for record in engine.records("s", start=2)][-1]
        assert len(last.bodies) == 10
        assert len(last.payload) < 200
        assert len(await ctx.get_messages()) == 10_010


async def test_a_set_after_a_compaction_keeps_the_plan_for_what_it_recognises() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, max_tokens=4_000)
        view = await ctx.get_messages_for_request()
        again = await ctx.get_messages()
        await ctx.set_messages([{"role": "system", "content": "s"}, *again])
        assert await ctx.get_messages_for_request() == [{"role": "system", "content": "s"}, *view]
        assert (await engine.audit("s")).requests[-1].breaks == ("set",)


@given(
    old=st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=12),
    new=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12),
)
def test_an_ordered_diff_is_a_longest_common_subsequence(
    old: list[bytes | None], new: list[bytes]
) -> None:
    matched = match_in_order(old, new)
    places = [place for place in matched if place is not None]
    assert places == sorted(set(places))
    assert all(old[p] == new[n] for n, p in enumerate(matched) if p is not None)
    assert len(places) == _longest(old, new)


def _longest(old: list[bytes | None], new: list[bytes]) -> int:
    table = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, one in enumerate(old):
        for j, two in enumerate(new):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if one == two else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


async def test_the_budget_comes_from_the_call_then_the_provider_then_the_settings() -> None:
    info = {"context_window": 9_000, "max_output_tokens": 3_000}
    asks = SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=info))
    model = SimpleNamespace(get_model_info=lambda: SimpleNamespace(**info))

    def broken() -> None:
        raise RuntimeError("no")

    liar = SimpleNamespace(get_info=lambda: {"defaults": {"context_window": "much"}})
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=7_000)
        await ctx.add_message(USER)
        for budget, provider in [
            (600, asks),
            (None, asks),
            (None, model),
            (None, SimpleNamespace(get_info=broken)),
            (None, liar),
            (None, object()),
            (90_000, None),
        ]:
            await ctx.get_messages_for_request(token_budget=budget, provider=provider)
        rows = (await engine.audit("s")).requests
        assert [row.budget for row in rows] == [600, 5_000, 5_000, 7_000, 7_000, 7_000, 7_000]


@pytest.mark.parametrize(
    "message", [{}, {"content": "no role"}, [], None, {"role": "user", "content": {1, 2}}]
)
async def test_a_bad_message_is_refused_and_nothing_is_stored(message: Any) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        with pytest.raises(InvalidMessage):
            await ctx.add_message(message)
        with pytest.raises(InvalidMessage):
            await ctx.set_messages([USER, message])
        assert await names(engine) == ["session:start"]
        await ctx.add_message(USER)
        assert await ctx.get_messages() == [USER]


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"max_tokens": "many"},
        {"compact_threshold": 1.5},
        {"compact_threshold": "high"},
        {"target_usage": 0.95},
        {"on_overflow": "panic"},
        {"policy": "psychic"},
        {"policy": "simple", "keep_recent": 0},
        {"policy": "simple", "max_messages": 3},
        {"compact_threshold": 0.8, "compaction_threshold": 0.9},
        {"reserve_tokens": -1},
        {"adviser_timeout": 0},
        {"export_on_compact": "yes"},
    ],
)
async def test_a_wrong_setting_is_refused_by_name(options: dict[str, Any]) -> None:
    async with eventctx.open() as engine:
        with pytest.raises(InvalidSetting, match=r"expected|unexpected|Unexpected"):
            await engine.session("s", **options)


async def test_an_unknown_setting_is_warned_of_with_the_nearest_name_and_has_no_effect() -> None:
    async with eventctx.open() as engine:
        with pytest.warns(UnknownSetting, match=r"max_token.*did you mean 'max_tokens'"):
            ctx = await engine.session("s", max_token=5)
        assert ctx.settings == Settings()


async def test_two_policies_are_refused_and_not_one_of_them_dropped() -> None:
    async with eventctx.open() as engine:
        with pytest.raises(InvalidSetting, match="policy: expected one value, found 'simple' and"):
            await engine.session("s", policy="simple", compaction_strategy="truncate")
        ctx = await engine.session("s", policy="simple", compaction_strategy="simple")
        assert ctx.policy.name == "simple"


async def test_settings_go_by_the_names_of_every_specification() -> None:
    async with eventctx.open() as engine:
        given = {"compaction_threshold": 0.8, "compaction_strategy": "simple", "max_messages": 50}
        ctx = await engine.session("s", **given)
        assert ctx.settings.compact_threshold == 0.8
        assert (ctx.policy.name, ctx.policy.max_messages) == ("simple", 50)


async def test_a_session_is_one_object_per_engine_and_refuses_other_settings() -> None:
    async with eventctx.open() as engine:
        first, second = await asyncio.gather(engine.session("s"), engine.session("s"))
        assert first is second
        for other in ({"max_tokens": 5}, {"policy": "simple"}, {"index_tokens": 9}):
            with pytest.raises(InvalidSetting, match="is open with"):
                await engine.session("s", **other)
        assert await engine.session("s", index_tokens=16_000) is first


async def test_records_of_a_turn_carry_its_ids_and_those_outside_null() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message(USER)
        async with ctx.turn("t-1") as turn:
            await ctx.add_message(USER)
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("m") as call:
                    await call.usage(10, 2)
                async with cycle.tool_call("read", "c1") as one:
                    pass
        await ctx.add_message(USER)
        found = {record.type: record async for record in engine.records("s")}
        outside = [r async for r in engine.records("s") if r.type == "context:message_added"]
        for record in (outside[0], outside[2]):
            assert (record.turn_id, record.span_id, record.iteration) == (None, None, None)
        assert {r.turn_id for r in found.values() if r.position > 1 and r.position < 11} == {"t-1"}
        assert found["context:request_prepared"].span_id == turn.span_id
        assert found["context:request_prepared"].iteration == 1
        assert found["provider:request"].span_id == call.span_id
        assert found["provider:request"].parent_span_id == turn.span_id
        assert found["usage:reported"].span_id == call.span_id
        assert found["tool:pre"].span_id == found["tool:post"].span_id == one.span_id
        assert found["tool:pre"].parent_span_id == call.span_id
        assert found["prompt:complete"].iteration is None


async def test_parallel_tool_calls_and_sessions_keep_their_own_spans() -> None:
    async with eventctx.open() as engine:

        async def work(name: str) -> None:
            ctx = await engine.session(name)
            async with ctx.turn() as turn, turn.iteration() as cycle:

                async def tool(n: int) -> None:
                    async with cycle.tool_call(f"tool{n}", f"{name}{n}"):
                        await asyncio.sleep(0)
                        await ctx.add_message({"role": "tool", "tool_call_id": f"{name}{n}"})

                await asyncio.gather(*(tool(n) for n in range(5)))

        await asyncio.gather(*(work(f"s{n}") for n in range(4)))
        for session in range(4):
            spans: dict[str, str | None] = {}
            async for record in engine.records(f"s{session}", bodies=True):
                if record.type == "tool:pre":
                    spans[record.span_id or ""] = decode_event(record).call_id  # type: ignore[union-attr]
                if record.type == "context:message_added":
                    message = msgspec.json.decode(record.bodies[0].data or b"")
                    assert message["tool_call_id"] == spans[record.span_id or ""]
                    assert message["tool_call_id"].startswith(f"s{session}")
            assert len(spans) == 5


async def test_pins_name_messages_that_exist_and_unpinning_those_that_are_pinned() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, rounds=1)
        with pytest.raises(InvalidSetting, match=r"found \[7\]"):
            await ctx.pin(0, 7)
        await ctx.pin(0)
        with pytest.raises(InvalidSetting, match=r"expected some of \[0\]"):
            await ctx.unpin(1)
        await ctx.unpin(0)
        await ctx.pin()
        assert (await names(engine))[-2:] == ["context:pinned", "context:unpinned"]


async def test_unknown_sessions_and_turns_are_named_in_the_error() -> None:
    async with eventctx.open() as engine:
        with pytest.raises(StreamNotFound, match="'nobody'"):
            await engine.transcript("nobody")
        with pytest.raises(StreamNotFound):
            await engine.audit("nobody")
        ctx = await engine.session("s")
        with pytest.raises(InvalidSetting, match="has no turns"):
            await engine.request_view("s", 3)
        async with ctx.turn():
            await ctx.get_messages_for_request()
        with pytest.raises(InvalidSetting, match="turns 1 to 1, found 3"):
            await engine.transcript("s", turn=3)
        with pytest.raises(InvalidSetting, match="no request in iteration 4"):
            await engine.request_view("s", 1, 4)
        with pytest.raises(InvalidSetting, match=r"expected a context:request_prepared"):
            await engine.request_view("s", position=0)


async def test_pinning_what_a_compaction_left_out_brings_it_back() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy="simple")
        for number in range(30):
            role = "assistant" if number else "user"
            await ctx.add_message({"role": role, "content": f"message {number}"})
        await ctx.compact()
        await ctx.pin(3)
        await ctx.compact()
        view = await ctx.get_messages_for_request()
        assert [m["content"] for m in view][:3] == ["message 0", "message 3", "message 20"]
        for wrong in (1.0, True, "x"):
            with pytest.raises(InvalidSetting, match="pin: expected"):
                await ctx.pin(wrong)  # type: ignore[arg-type]


async def test_a_provider_may_answer_asynchronously_and_leave_counts_out() -> None:
    class Provider:
        async def get_info(self) -> Any:
            return {"defaults": {"context_window": 9_000, "max_output_tokens": 3_000}}

    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.get_messages_for_request(provider=Provider())
            async with cycle.provider_call("m") as call:
                await call.usage(10, None, cache_read=None)
        audit = await engine.audit("s")
        assert (audit.requests[0].budget, audit.requests[0].reported) == (5_000, 10)


async def test_a_turn_id_that_is_used_again_makes_turns_of_their_own() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        for number in range(3):
            async with ctx.turn("again"):
                await ctx.add_message({"role": "user", "content": str(number)})
        assert [len(await engine.transcript("s", turn=n)) for n in (1, 2, 3)] == [1, 2, 3]


async def test_a_context_tells_its_session_policy_and_limit_but_not_what_was_said() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=20_000)
        await ctx.add_message({"role": "user", "content": "SECRET"})
        assert repr(ctx) == "<Context s: 2 records, policy workset, 20,000 tokens>"
