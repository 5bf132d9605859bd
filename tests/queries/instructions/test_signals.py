"""The count of absent demands in traces and metrics, and its relation to the ledger."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.log.plan import Run
from eventctx.policies.presets import Simple
from eventctx.projections.metrics import fold as metrics
from eventctx.projections.metrics import names
from eventctx.projections.trace import fold as trace
from eventctx.projections.trace import semconv
from tests.how_much import some
from tests.queries.instructions.given import compact, model, session, user

ABSENT = semconv.INSTRUCTIONS_ABSENT
DROPPED = Run(0, 1, "dropped", "older")


async def called(ctx: eventctx.Context) -> None:
    """A turn with one request and the call that sends it."""
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.get_messages_for_request()
        async with cycle.provider_call("m") as call:
            await call.usage(10, 1)


async def records_of(engine: Engine) -> list[Any]:
    return [record async for record in engine.records("s")]


async def test_the_span_of_a_call_and_its_turn_say_how_many_demands_are_absent() -> None:
    engine, ctx = await session()
    await called(ctx)
    await compact(engine, DROPPED)
    await called(ctx)
    spans = list(trace.fold(await records_of(engine)))
    chats = [one.attributes[ABSENT] for one in spans if one.name.startswith("chat")]
    turns = [one.attributes[ABSENT] for one in spans if one.name.startswith("invoke_agent")]
    assert (chats, turns) == ([0, 2], [0, 0, 2])


async def test_every_request_with_demands_is_measured() -> None:
    engine, ctx = await session()
    await compact(engine, DROPPED)
    await called(ctx)
    found = metrics.fold(await records_of(engine))
    assert [one.value for one in found if one.instrument is names.INSTRUCTIONS_ABSENT] == [0, 2]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 5)),
        st.just(("compact", 0)),
        st.tuples(st.just("restore"), st.integers(0, 20)),
        st.tuples(st.just("take back"), st.integers(0, 20)),
        st.tuples(st.just("cut"), st.integers(0, 20)),
        st.just(("clear", 0)),
        st.just(("ask", 0)),
    ),
    min_size=6,
    max_size=25,
)


@settings(max_examples=some(20, 60), deadline=None)
@given(STEPS)
def test_the_count_of_a_request_is_never_below_that_of_the_ledger(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(played(steps))


async def played(steps: list[tuple[str, int]]) -> None:
    """Take the steps, and compare every request's count with the ledger as of that request."""
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy="simple", max_tokens=2_000, on_overflow="send_floor")
        for step, number in [("say", 0), ("say", 1), *steps, ("ask", 0)]:
            known = [line.number for line in await engine.transcript("s")]
            match step:
                case "say":
                    # Two texts alike, now and then: a demand that is said again.
                    await ctx.add_message(user(f"Well. Never touch file_{number}.py. Only read."))
                    await ctx.add_message(model("Done. " * 40))
                case "compact":
                    await ctx.compact(policy=Simple(keep_recent=2))
                case "restore" if number in known:
                    await ctx.restore(number)
                case "take back":
                    found = (await engine.instructions("s")).instructions
                    holding = [one for one in found if one.stands is not None]
                    if holding:
                        one = holding[number % len(holding)]
                        await ctx.withdraw_instruction(one.number, one.demand)
                case "cut":
                    messages = await ctx.get_messages()
                    await ctx.set_messages(messages[number:])
                case "clear":
                    await ctx.clear()
                case _:
                    await ctx.get_messages_for_request()
        for row in (await engine.audit("s")).requests:
            view = await engine.request_view("s", position=row.position)
            absent = (await engine.instructions("s", position=row.position)).absent
            assert absent <= (view.prepared.demands_absent or 0)
