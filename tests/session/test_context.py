"""The context manager: the five methods of the contract, turns, pins, and bad input."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidMessage, InvalidSetting, StreamNotFound
from eventctx.log import events
from eventctx.log.codec import decode_event, decode_known
from eventctx.messages.overlap import match_in_order
from eventctx.session.settings import Settings, UnknownSetting
from eventctx.stores.memory import MemoryStore
from tests.session.given import opened, texts
from tests.sessions import USER, filled, model, names, user

SYSTEM = {"role": "system", "content": "new"}


async def test_a_compaction_changes_the_view_and_never_the_transcript() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine, max_tokens=4_000)
    before = await ctx.get_messages()
    view = await ctx.get_messages_for_request()
    assert len(view) < len(before)
    assert await ctx.get_messages() == before
    made = ["context:pre_compact", "context:post_compact", "context:request_prepared"]
    assert await names(engine) == ["session:start", *["context:message_added"] * 61, *made]
    # A set of what is there and one row more keeps the plan for what it recognises.
    await ctx.set_messages([SYSTEM, *before])
    assert await ctx.get_messages_for_request() == [SYSTEM, *view]
    assert (await engine.audit("s")).requests[-1].breaks == ("set",)


async def test_clear_empties_the_transcript_and_keeps_history() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine, rounds=2)
    await ctx.clear()
    assert await ctx.get_messages() == await ctx.get_messages_for_request() == []
    assert await ctx.get_token_count() == 0
    assert len(await engine.transcript("s", at=5)) == 5
    await ctx.add_message(USER)
    assert [m.number for m in await engine.transcript("s")] == [5]


async def test_set_messages_keeps_the_numbers_of_what_it_recognises() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine, rounds=2)
    kept = await ctx.get_messages()
    await ctx.set_messages([SYSTEM, *kept[:2], *kept[3:], USER])
    assert [m.number for m in await engine.transcript("s")] == [5, 0, 1, 3, 4, 6]
    last = [record async for record in engine.records("s", bodies=True)][-1]
    assert len(last.bodies) == 2
    assert decode_event(last) == events.MessagesSet(order=((5, 5), (0, 1), (3, 4), (6, 6)))


@pytest.mark.slow
async def test_a_set_of_ten_thousand_known_messages_costs_only_the_new_ones() -> None:
    engine, ctx = await opened()
    messages = [user(f"message {n}") for n in range(10_000)]
    await ctx.set_messages(messages)
    new = [user(f"n{n}") for n in range(10)]
    await ctx.set_messages([*messages[:5_000], *new, *messages[5_000:]])
    last = [record async for record in engine.records("s", start=2)][-1]
    assert len(last.bodies) == 10 and len(last.payload) < 200
    assert len(await ctx.get_messages()) == 10_010


@given(
    old=st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=12),
    new=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12),
)
def test_a_diff_is_a_longest_common_subsequence(old: list[bytes | None], new: list[bytes]) -> None:
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

    def broken() -> None:
        raise RuntimeError("no")

    async def later() -> dict[str, Any]:
        return {"defaults": info}

    engine, ctx = await opened(USER, max_tokens=7_000)
    for wanted, budget, provider in [
        (600, 600, SimpleNamespace(get_info=later)),
        (5_000, None, SimpleNamespace(get_info=later)),
        (5_000, None, SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=info))),
        (5_000, None, SimpleNamespace(get_model_info=lambda: SimpleNamespace(**info))),
        (7_000, None, SimpleNamespace(get_info=broken)),
        (7_000, None, SimpleNamespace(get_info=lambda: {"defaults": {"context_window": "much"}})),
        (7_000, None, object()),
        (7_000, 90_000, None),
    ]:
        await ctx.get_messages_for_request(token_budget=budget, provider=provider)
        assert (await engine.audit("s")).requests[-1].budget == wanted


@pytest.mark.parametrize(
    "message", [{}, {"content": "no role"}, [], None, 3, {"role": "user", "content": {1, 2}}]
)
async def test_a_bad_message_is_refused_and_nothing_is_stored(message: Any) -> None:
    engine, ctx = await opened()
    for bad in (
        lambda: ctx.add_message(message),
        lambda: ctx.set_messages([USER, message]),
        lambda: ctx.resume_messages([message]),
    ):
        with pytest.raises(InvalidMessage):
            await bad()
    assert await names(engine) == ["session:start"]
    await ctx.add_message(USER)
    assert await ctx.get_messages() == [USER]


async def test_an_unknown_setting_is_warned_of_with_the_nearest_name_and_has_no_effect() -> None:
    with pytest.warns(UnknownSetting, match=r"max_token.*did you mean 'max_tokens'"):
        _, ctx = await opened(max_token=5)
    assert ctx.settings == Settings()


async def test_settings_go_by_the_names_of_every_specification_and_two_values_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="policy: expected one value, found 'simple' and"):
        await opened(policy="simple", compaction_strategy="truncate")
    _, ctx = await opened(policy="simple", compaction_strategy="simple")
    assert ctx.policy.name == "simple"
    given = {"compaction_threshold": 0.8, "compaction_strategy": "simple", "max_messages": 50}
    _, ctx = await opened(**given)
    assert ctx.settings.compact_threshold == 0.8
    assert (ctx.policy.name, ctx.policy.max_messages) == ("simple", 50)


async def test_a_session_is_one_object_per_engine_and_refuses_other_settings() -> None:
    engine = Engine(MemoryStore())
    first, second = await asyncio.gather(engine.session("s"), engine.session("s"))
    assert first is second
    for other in ({"max_tokens": 5}, {"policy": "simple"}, {"index_tokens": 9}):
        with pytest.raises(InvalidSetting, match="is open with"):
            await engine.session("s", **other)
    assert await engine.session("s", index_tokens=16_000) is first


async def test_records_of_a_turn_carry_its_ids_and_those_outside_null() -> None:
    engine, ctx = await opened(USER)
    async with ctx.turn("t-1") as turn:
        await ctx.add_message(USER)
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            async with cycle.provider_call("m") as call:
                await call.usage(10, None, cache_read=None)
            async with cycle.tool_call("read", "c1") as tool:
                pass
    await ctx.add_message(USER)
    _, outside, *inside, behind = [record async for record in engine.records("s")]
    for record in (outside, behind):
        assert (record.turn_id, record.span_id, record.iteration) == (None, None, None)
    assert {record.turn_id for record in inside} == {"t-1"}
    found = {one.type: (one.span_id, one.parent_span_id, one.iteration) for one in inside}
    assert found["context:request_prepared"][::2] == (turn.span_id, 1)
    assert found["provider:request"][:2] == (call.span_id, turn.span_id)
    assert found["usage:reported"][0] == call.span_id
    assert found["tool:pre"][:2] == (tool.span_id, call.span_id)
    assert found["tool:post"][0] == tool.span_id
    assert found["prompt:complete"][2] is None
    assert (await engine.audit("s")).requests[0].reported == 10  # other counts are left out


async def test_parallel_tool_calls_and_sessions_keep_their_own_spans() -> None:
    engine = Engine(MemoryStore())

    async def work(name: str) -> None:
        ctx = await engine.session(name)
        async with ctx.turn() as turn, turn.iteration() as cycle:

            async def tool(n: int) -> None:
                async with cycle.tool_call(f"tool{n}", f"{name}{n}"):
                    await asyncio.sleep(0)
                    await ctx.add_message({"role": "tool", "tool_call_id": f"{name}{n}"})

            await asyncio.gather(*(tool(n) for n in range(5)))

    sessions = [f"s{n}" for n in range(4)]
    await asyncio.gather(*map(work, sessions))
    for session in sessions:
        calls, rows = dict[str | None, Any](), dict[str | None, Any]()
        async for record in engine.records(session, bodies=True):
            if record.type == "tool:pre":
                calls[record.span_id] = decode_known(record).call_id
            if record.type == "context:message_added":
                rows[record.span_id] = msgspec.json.decode(record.bodies[0].data)["tool_call_id"]
        assert calls == rows
        assert sorted(calls.values()) == [f"{session}{n}" for n in range(5)]


async def test_pins_name_messages_that_exist_and_unpinning_those_that_are_pinned() -> None:
    engine = Engine(MemoryStore())
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
    engine, ctx = await opened()
    for question in (engine.transcript("nobody"), engine.audit("nobody")):
        with pytest.raises(StreamNotFound, match="'nobody'"):
            await question
    with pytest.raises(InvalidSetting, match="has no turns"):
        await engine.request_view("s", 3)
    for number in range(3):  # an id that is used again makes turns of their own
        async with ctx.turn("again"):
            await ctx.add_message(user(str(number)))
            await ctx.get_messages_for_request()
    assert [len(await engine.transcript("s", turn=n)) for n in (1, 2, 3)] == [1, 2, 3]
    for question, said in (
        (engine.transcript("s", turn=4), "turns 1 to 3, found 4"),
        (engine.request_view("s", 1, 4), "no request in iteration 4"),
        (engine.request_view("s", position=0), "expected a context:request_prepared"),
    ):
        with pytest.raises(InvalidSetting, match=said):
            await question


async def test_pinning_what_a_compaction_left_out_brings_it_back() -> None:
    rows = [model(f"message {number}") for number in range(30)]
    _, ctx = await opened(user("message 0"), *rows[1:], policy="simple")
    await ctx.compact()
    await ctx.pin(3)
    await ctx.compact()
    view = await ctx.get_messages_for_request()
    assert texts(view)[:3] == ["message 0", "message 3", "message 20"]


async def test_a_context_tells_its_session_policy_and_limit_but_not_what_was_said() -> None:
    _, ctx = await opened(user("SECRET"), max_tokens=20_000)
    assert repr(ctx) == "<Context s: 2 records, policy workset, 20,000 tokens>"


# -- how far a message, a request and a question go ----------------------------------------------


async def modules_entered(call: Callable[[], Awaitable[Any]], *, until_append: bool) -> list[str]:
    """Modules of the library in the order in which ``call`` enters them, the store's left out.

    With ``until_append`` only those before the store is handed the records, else until the call
    returns. Only this thread is watched: what the store's own thread does is not on the way.
    """
    found: list[str] = []

    def enter(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("eventctx."):
            return
        if name.startswith("eventctx.stores."):
            if until_append and frame.f_code.co_name == "append":
                sys.setprofile(None)
        elif name not in found:
            found.append(name)

    before = sys.getprofile()
    gc.disable()  # what an earlier test left behind ends in modules of its own
    sys.setprofile(enter)
    try:
        await call()
    finally:
        sys.setprofile(before)
        gc.enable()
    return [name.removeprefix("eventctx.") for name in found]


async def test_a_message_a_request_and_why_enter_few_modules() -> None:
    engine, ctx = await opened()
    for _ in range(3):
        await ctx.add_message(USER)
        await ctx.get_messages_for_request()
    async with eventctx.read(engine.store) as reader:
        await reader.why("s", 0)
        ways: list[tuple[Callable[[], Awaitable[Any]], int, str]] = [
            (lambda: ctx.add_message(USER), 11, "session.context"),
            (ctx.get_messages_for_request, 21, "session.context"),
            (lambda: reader.why("s", 0), 37, "reader"),
        ]
        for call, most, first in ways:
            entered = await modules_entered(call, until_append=first != "reader")
            assert entered[0] == first
            assert len(entered) <= most, entered
