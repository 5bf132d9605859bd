"""What adapters of hosts build on: following, observing one session, links, what was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import UnknownEventName
from eventctx.log.codec import decode_event
from eventctx.log.open_calls import NO_END
from eventctx.log.record import Record
from eventctx.log.usage import Usage
from tests.session.given import opened
from tests.sessions import user

QUESTION = {"role": "user", "content": "a"}


async def records(engine: Engine, session: str = "s") -> list[Record]:
    return [record async for record in engine.records(session)]


def named(found: list[Record], name: str) -> list[Any]:
    return [decode_event(record) for record in found if record.type == name]


async def test_what_a_host_tells_becomes_the_records_that_blocks_would_have_made() -> None:
    engine, ctx = await opened()
    host = ctx.following()
    assert not host.in_turn
    await host.turn_began("turn-1", agent="coder")
    assert host.in_turn
    await ctx.add_message(QUESTION)
    await host.iteration_began("anthropic", "m")
    await ctx.get_messages_for_request()
    await host.request_prepared()
    await host.model_known(usage=Usage(100, 7, 60), response_id="r", finish_reason="end")
    await host.model_answered()
    await host.tool_began("read", "c1", "key")
    await host.tool_ended("key")
    await host.turn_ended()
    found = await records(engine)
    assert [one.type for one in found][1:] == [
        *("prompt:submit", "context:message_added", "context:request_prepared"),
        *("provider:request", "usage:reported", "provider:response"),
        *("tool:pre", "tool:post", "prompt:complete"),
    ]
    assert {one.turn_id for one in found[1:]} == {"turn-1"}
    by_type = {one.type: one for one in found}
    turn, call = by_type["prompt:submit"], by_type["provider:request"]
    assert [one.iteration for one in found[1:]] == [None, None, *[1] * 6, None]
    assert call.parent_span_id == turn.span_id
    assert by_type["tool:pre"].parent_span_id == call.span_id
    assert by_type["context:request_prepared"].span_id == turn.span_id
    (asked,), (usage,) = named(found, "provider:request"), named(found, "usage:reported")
    assert asked.prepared == usage.prepared == by_type["context:request_prepared"].position
    assert (usage.prompt, usage.output, usage.cache_read) == (100, 7, 60)


async def test_what_a_host_leaves_open_is_closed_by_what_comes_next() -> None:
    engine, ctx = await opened()
    host = ctx.following()
    await host.turn_began()
    await host.iteration_began("p")
    await host.tool_began("read", None, 1)
    await host.iteration_began("p")
    await host.turn_began()
    await host.iteration_began("p")
    await host.model_failed("TimeoutError", "slow")
    await host.turn_began()
    await host.turn_ended()
    found = await records(engine)
    assert [one.type for one in found][1:] == [
        *("prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:error"),
        *("provider:request", "provider:error", "prompt:complete"),
        *("prompt:submit", "provider:request", "provider:error", "prompt:complete"),
        *("prompt:submit", "prompt:complete"),
    ]
    ends = [(one.status, one.error) for one in named(found, "prompt:complete")]
    assert ends == [("cancelled", NO_END), ("error", "TimeoutError: slow"), ("ok", None)]
    assert [one.status for one in named(found, "tool:error")] == ["cancelled"]


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize(
    ("what", "ended"),
    [
        ("call", ("error", "ValueError")),
        ("tool", ("error", "ValueError")),
        ("tool, and the turn went on", ("cancelled", NO_END)),
    ],
)
async def test_a_turn_without_an_end_ended_with_the_failure_that_it_went_no_further_than(
    what: str, ended: tuple[str, str], cancelled: bool
) -> None:
    engine, ctx = await opened()
    turns = ctx.following()
    await turns.turn_began()
    await turns.iteration_began()
    if what == "call":
        await turns.model_failed("ValueError", "no", cancelled=cancelled)
    else:
        await turns.model_answered()
        await turns.tool_began("read", "c1", "c1")
        await turns.tool_failed("c1", "ValueError", "no", cancelled=cancelled)
    if what.endswith("went on"):
        await turns.iteration_began()
        await turns.model_answered()
    await turns.turn_began()
    await turns.turn_ended()
    first, _ = named(await records(engine), "prompt:complete")
    status = "cancelled" if cancelled else ended[0]
    assert (first.status, first.error.partition(":")[0]) == (status, ended[1])


async def test_what_makes_no_sense_outside_of_a_turn_does_nothing() -> None:
    engine, ctx = await opened()
    host = ctx.following()
    await host.turn_ended()
    await host.iteration_began("p")
    await host.request_prepared()
    await host.model_known(model="m")
    await host.model_answered()
    await host.model_failed("E", "x")
    await host.tool_began("t", None, 1)
    await host.tool_ended(1)
    await host.tool_failed(1, "E", "x")
    assert [one.type for one in await records(engine)] == ["session:start"]


async def test_two_turns_that_begin_at_once_have_one_end_each(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")
        host = ctx.following()
        await asyncio.gather(*[host.turn_began(f"turn-{number}") for number in range(3)])
        await host.turn_ended()
        await ctx.close()
        found = [one for one in await records(engine) if one.turn_id is not None]
    begun, ended = (
        [one.span_id for one in found if one.type == kind]
        for kind in ("prompt:submit", "prompt:complete")
    )
    assert ended == begun and len(set(begun)) == 3


async def test_a_caller_that_is_cancelled_leaves_nothing_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        host = ctx.following()
        for at in range(8):
            # Somebody else wrote: the next step has to read before it can append.
            async with eventctx.open(path) as other:
                await (await other.session("s")).add_message(QUESTION)

            async def tell() -> None:
                await host.turn_began()
                await host.iteration_began("p")
                await host.tool_began("read", None, 1)
                await host.turn_ended()

            running = asyncio.ensure_future(tell())
            for _ in range(at):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await host.turn_ended()
        await ctx.close()
        found = await records(engine)
    for began, *ended in (
        ("prompt:submit", "prompt:complete"),
        ("provider:request", "provider:response", "provider:error"),
        ("tool:pre", "tool:post", "tool:error"),
    ):
        for one in [one for one in found if one.type == began]:
            of = [other for other in found if other.span_id == one.span_id and other.type in ended]
            assert len(of) == 1, began
    assert any(one.type == "prompt:submit" for one in found)


async def test_a_block_counts_more_than_what_a_host_told() -> None:
    engine, ctx = await opened()
    host = ctx.following()
    await host.turn_began("host")
    async with ctx.turn("block"):
        await ctx.add_message(QUESTION)
    await ctx.add_message(QUESTION)
    await host.turn_ended()
    await ctx.add_message(QUESTION)
    found = [one for one in await records(engine) if one.type == "context:message_added"]
    assert [one.turn_id for one in found] == ["block", "host", None]


async def test_a_session_is_observed_alone_until_the_observer_stops() -> None:
    engine, one = await opened()
    other = await engine.session("other")
    heard: list[str] = []
    stop = one.on("context:*", lambda record: heard.append(record.stream))
    later: list[str] = []

    async def slowly(record: Record) -> None:
        later.append(record.type)

    one.on("context:message_added", slowly)
    await one.add_message(QUESTION)
    await other.add_message(QUESTION)
    stop()
    await one.add_message(QUESTION)
    await engine.hooks.drain()
    assert heard == ["s"]
    assert later == ["context:message_added"] * 2
    with pytest.raises(UnknownEventName):
        one.on("context:nothing", heard.append)  # type: ignore[arg-type]


async def test_a_link_is_written_to_both_sessions_open_or_not(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        await engine.session("parent")
        await engine.session("child")
        await engine.link("parent", "child", call_id="c1")
        await engine.link("elsewhere", "child")
        with pytest.raises(eventctx.StreamNotFound):
            await engine.link("child", "nobody")
    async with eventctx.open(path) as engine:
        await engine.session("second")
        await engine.link("parent", "second", kind="handoff")
        sessions = {info.stream for info in await engine.sessions()}
        linked = {
            session: [
                (one.session, one.relation, one.kind, one.call_id)
                for one in named(await records(engine, session), "session:linked")
            ]
            for session in sessions
        }
        assert (await engine.verify("parent")).ok
    of_parent = [("child", "child", "subagent", "c1"), ("second", "child", "handoff", None)]
    # A parent that is elsewhere is named in the child alone.
    of_child = [("parent", "parent", "subagent", "c1"), ("elsewhere", "parent", "subagent", None)]
    assert linked == {
        "parent": of_parent,
        "child": of_child,
        "second": [("parent", "parent", "handoff", None)],
    }


async def test_what_a_host_adds_is_stored_once_and_referred_to_afterwards() -> None:
    reminder, other = (
        user(f"<system-reminder>{text}</system-reminder>") for text in ("now", "then")
    )
    engine, ctx = await opened(QUESTION)
    for added in ([reminder], [reminder, other, reminder], [other]):
        await ctx.get_messages_for_request()
        prepared = (await records(engine))[-1].position
        await ctx.record_sent(prepared, 1 + len(added), [(1, one) for one in added])
    found = await records(engine)
    assert (await engine.verify("s")).ok
    carriers = [one for one in found if one.type == "context:request_sent"]
    assert [len(one.bodies) for one in carriers] == [1, 1, 0]
    told = named(found, "context:request_sent")
    first, second = carriers[0].position, carriers[1].position
    places = [[(one.position, one.index) for one in event.additions] for event in told]
    assert places == [[(None, 0)], [(first, 0), (None, 0), (first, 0)], [(second, 0)]]
    # None of it is in a view: it is what the host did besides.
    assert await ctx.get_messages_for_request() == [QUESTION]


@pytest.mark.parametrize("limit", [None, 500])
async def test_without_a_limit_a_providers_window_is_used_whole(limit: int | None) -> None:
    info = {"context_window": 900_000, "max_output_tokens": 10_000}
    engine, ctx = await opened(QUESTION, max_tokens=limit, max_tokens_fallback=700)
    await ctx.get_messages_for_request(provider=SimpleNamespace(get_info=lambda: info))
    await ctx.get_messages_for_request()
    await ctx.get_messages_for_request(token_budget=600_000)
    budgets = [one.budget for one in named(await records(engine), "context:request_prepared")]
    assert budgets == ([889_000, 700, 600_000] if limit is None else [500, 500, 500])
