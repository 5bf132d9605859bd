"""Metrics of real sessions: equal live and from the log, and true of what was really sent."""

from __future__ import annotations

import asyncio
import copy
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.log import events as ev
from eventctx.projections.metrics import names
from eventctx.projections.metrics.fold import fold
from eventctx.projections.view.render import without_thinking
from eventctx.queries.requests import RequestView
from eventctx.stores.memory import MemoryStore
from tests.hooks.measured import by_position
from tests.hooks.observing import agent
from tests.how_much import some
from tests.queries.explained import thirty
from tests.sessions import erase
from tests.transcripts import Story, stories

REUSED = names.PREFIX_REUSED.name


async def broken_off(ctx: eventctx.Context) -> None:
    """A tool and a call that fail, and a turn that is cancelled during its call."""
    async with ctx.turn() as turn, turn.iteration() as cycle:
        with pytest.raises(OSError, match="secret"):
            async with cycle.tool_call("read", "c"):
                raise OSError("no such file: secret")
    with pytest.raises(TimeoutError):
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            async with cycle.provider_call("model-1", "acme"):
                raise TimeoutError("https://example.org/secret took too long")
    with pytest.raises(asyncio.CancelledError):
        async with ctx.turn() as turn, turn.iteration(1) as cycle, cycle.provider_call("model-2"):
            raise asyncio.CancelledError


# -- the prefix that is reused -------------------------------------------------------------------


def share(before: RequestView, after: RequestView) -> float:
    """The same as bytes tell: the messages with which both requests begin, in tokens."""
    total = shared = 0
    same = True
    texts = [json.dumps(message) for message in after.messages]
    for place, (entry, message) in enumerate(zip(before.entries, before.messages, strict=True)):
        same = same and place < len(texts) and texts[place] == json.dumps(message)
        total += entry.tokens
        shared += entry.tokens if same else 0
    return shared / total if total else 1.0


async def check(engine: Engine, exact: bool = True) -> None:
    records = [record async for record in engine.records("s")]
    measured = by_position(records, REUSED)
    places = [one.position for one in records if one.type == "context:request_prepared"]
    assert list(measured) == places[1:]
    views = [await engine.request_view("s", position=place) for place in places]
    for before, after in pairwise(views):
        if before.changes or after.changes:
            continue  # what makes a row acceptable is not in the entries that the metric compares
        value, true = measured[after.position], share(before, after)
        assert value == true if exact else value <= true, (before, after)


examples = settings(
    max_examples=some(10, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@examples
@given(
    story=stories(),
    budget=st.sampled_from([300, 1_200, 4_000]),
    policy=st.sampled_from(["ladder", "simple", "truncate"]),
    every=st.integers(1, 4),
)
def test_the_measured_share_is_that_of_the_bytes_that_were_sent(
    story: Story, budget: int, policy: str, every: int
) -> None:
    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session("s", policy=policy, on_overflow="send_floor", max_tokens=budget)
        for number, message in enumerate(story.messages):
            await ctx.add_message(message)
            if number % every == 0:
                await ctx.get_messages_for_request()
        # The log knows two messages of the same bytes apart, and a view may leave thinking out.
        bare = [json.dumps(without_thinking(copy.deepcopy(one))) for one in story.messages]
        await check(engine, exact=len(set(bare)) == len(bare))

    asyncio.run(play())


@examples
@given(story=stories(), data=st.data())
def test_a_set_never_shares_more_than_its_bytes_do(story: Story, data: st.DataObject) -> None:
    rows = st.lists(st.sampled_from(story.messages), max_size=len(story.messages))

    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session("s", on_overflow="send_floor", max_tokens=1_200)
        for message in story.messages:
            await ctx.add_message(message)
        await ctx.get_messages_for_request()
        await ctx.set_messages(data.draw(rows))
        await ctx.get_messages_for_request()
        await check(engine, exact=False)

    asyncio.run(play())


async def shares(engine: Engine) -> list[float]:
    return list(by_position([record async for record in engine.records("s")], REUSED).values())


async def test_an_erased_message_ends_what_is_shared_and_another_family_does_not() -> None:
    engine, ctx = await thirty()
    positions = [line.position for line in await engine.transcript("s")]
    await erase(ctx, ev.Erased(numbers=(15,), bodies=((positions[15], 0),)))
    await ctx.get_messages_for_request()
    await ctx.get_messages_for_request()
    assert await shares(engine) == [pytest.approx(0.5, abs=0.1), 1.0]
    await ctx.set_messages((await ctx.get_messages())[:29])
    await ctx.get_messages_for_request()
    assert 0.9 < (await shares(engine))[-1] < 1
    engine, ctx = await thirty()
    await ctx.get_messages_for_request(model="claude-sonnet-4")
    await ctx.get_messages_for_request(model="gpt-5")
    await ctx.compact(policy="simple", budget=300)
    await ctx.get_messages_for_request(model="claude-sonnet-4")
    *before, last = await shares(engine)
    assert before == [1.0, 1.0]
    assert last < 0.5


async def test_no_attribute_holds_an_id_or_what_an_error_said() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=1_200)
        await agent(ctx)
        await broken_off(ctx)
        await ctx.close()
        records = [record async for record in engine.records("s")]
    ids: set[Any] = {"s"}
    for record in records:
        ids |= {record.turn_id, record.span_id, record.parent_span_id}
    for one in fold(records):
        assert set(one.attributes) <= set(one.instrument.attributes), one
        assert ids.isdisjoint(one.attributes.values())
        assert not any("secret" in value for value in one.attributes.values())
