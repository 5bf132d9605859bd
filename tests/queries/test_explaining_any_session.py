"""For every session and request: why, diff and lost say what the request itself shows."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow
from eventctx.log.codec import decode_event
from eventctx.log.naming import RequestName
from eventctx.log.plan import Plan, find, numbers_in
from eventctx.policies.named import policy_named
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.queries.explaining import left_out_of
from eventctx.queries.lost.reading import what_left
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.queries.explained import user
from tests.sessions import tool_round, with_frames

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "say": st.integers(0, 600),
    "round": st.integers(0, 3_000),
    "think": st.integers(0, 400),
    "orphan": st.integers(0, 3),
    "compact": st.sampled_from(["simple", "ladder", "truncate", "summarize"]),
    **dict.fromkeys(("restore", "pin", "unpin", "set"), st.integers(0, 30)),
    "clear": st.integers(0, 9),
    "request": st.integers(0, 2_000),
}
STEP = st.one_of([st.tuples(st.just(what), value) for what, value in VALUES.items()])
STEPS = st.lists(STEP, min_size=8, max_size=some(20, 30))


async def play(ctx: eventctx.Context, steps: list[tuple[str, Any]]) -> None:
    """Do what the steps say, each followed by a request, so that every state is looked at."""
    for place, (what, value) in enumerate(steps):
        lines = (await ctx._session.lines.at(ctx._session.appends.head)).lines
        numbers = [line.number for line in lines]
        chosen = numbers[value % len(numbers)] if numbers and type(value) is int else None
        match what:
            case "say":
                await ctx.add_message(user(f"say {place % 3} " + "x" * value))
            case "round":
                for message in tool_round(place, value):
                    await ctx.add_message(message)
            case "think":
                thought = {"type": "thinking", "thinking": "t" * value, "signature": "c2ln"}
                text = {"type": "text", "text": "y" * value}
                await ctx.add_message({"role": "assistant", "content": [thought, text]})
            case "orphan":
                await ctx.add_message(tool_round(value, 10)[1])
            case "compact":
                keep = {"keep_recent": 3} if value in ("simple", "truncate") else {}
                await ctx.compact(policy=policy_named(value, keep))
            case "restore" if chosen is not None:
                await ctx.restore(chosen)
            case "pin" if chosen is not None:
                await ctx.pin(chosen)
            case "unpin" if chosen in ctx._session.aggregate.view.pins:
                await ctx.unpin(chosen)
            case "set":
                rows = await ctx.get_messages()
                await ctx.set_messages([*rows[:value], *rows[value + 1 :], user(f"new {place}")])
            case "clear" if value == 9:
                await ctx.clear()
        with contextlib.suppress(ContextOverflow):
            await ctx.get_messages_for_request(value + 600 if what == "request" else None)


async def in_short(request: object) -> str:
    return "In short: all went well."


def insertions_in(view: eventctx.RequestView) -> set[tuple[int, int]]:
    refs = [entry.ref for entry in view.entries if isinstance(entry.ref, InsertionRef)]
    return {(ref.position, ref.index) for ref in refs}


async def check_request(engine: Engine, position: int, numbers: int) -> dict[int, MessageRef]:
    view = await engine.request_view("s", position=position)
    assert view.consistent
    messages = [entry.ref for entry in view.entries if entry.kind == "message"]
    shown = {ref.number: ref for ref in messages if isinstance(ref, MessageRef)}
    plans: dict[int, Plan] = {}
    async for record in engine.records("s", 0, position):
        if record.type == "context:post_compact":
            event: Any = decode_event(record)
            if event.plan is not None:
                plans[record.position] = event.plan
    humans = set()
    for number in range(numbers):
        why = await engine.why("s", number, position=position)
        ref = shown.get(number)
        assert why.in_view == (ref is not None)
        assert (why.standing == "shortened") == (ref is not None and ref.shortened)
        assert (why.stripped is not None) == (ref is not None and ref.stripped)
        if why.standing == "not_added":
            continue
        assert why.origin is not None
        if why.origin.facts.human:
            humans.add(number)
        if why.standing in ("shortened", "summarised", "dropped", "merged"):
            assert why.ruling is not None
            run = find(plans[why.ruling.cause.position].runs, number)
            assert run is not None
            assert (run.disposition, run.reason) == (why.standing, why.ruling.reason)
        if why.stays is not None:
            assert why.stays.cause.position == view.prepared.plan
    lost = await what_left(engine.store, "s", selector=RequestName(position=position))
    assert lost.messages.total == len(shown) + lost.messages.left
    assert lost.messages.shortened == sum(ref.shortened for ref in shown.values())
    assert sum(lost.messages.left_by.values()) == lost.messages.left
    assert lost.messages.left_of.get("person", 0) == len(humans - shown.keys())
    left_out = await left_out_of(engine.store, "s", RequestName(position=position))
    hidden = numbers_in(run for one in left_out for run in one.runs)
    assert {number for number, ref in shown.items() if ref.shortened} <= hidden
    return shown


async def check(steps: list[tuple[str, Any]]) -> None:
    engine = Engine(MemoryStore())
    with_frames(engine.store)
    options = {"max_tokens": 3_000, "on_overflow": "send_floor", "summarizer": in_short}
    ctx = await engine.session("s", policy="ladder", **options)
    await play(ctx, steps)
    numbers = ctx._session.aggregate.view.next_number
    positions = [row.position for row in (await engine.audit("s")).requests]
    shown = {at: await check_request(engine, at, numbers) for at in positions}
    for before, after in zip(positions, [*positions[1:], positions[0]], strict=True):
        before, after = sorted((before, after))
        compared = await engine.diff("s", before, after, by="position")
        old, new = shown[before], shown[after]

        def found(*kinds: Any, compared: Any = compared) -> set[int]:
            return {one.number for one in compared.of(*kinds)}

        left = found("summarised", "dropped", "merged", "omitted", "set", "cleared")
        assert left == old.keys() - new.keys()
        assert found("entered", "restored") - old.keys() == new.keys() - old.keys()
        both = old.keys() & new.keys()
        cut = {n for n in both if new[n].shortened and new[n].digest != old[n].digest}
        assert found("shortened") == cut
        stripped = {n for n in both if new[n].stripped and not old[n].stripped}
        assert found("thinking_left_out") == stripped
        views = [await engine.request_view("s", position=at) for at in (before, after)]
        inserted = [one for one in compared.came if one.position is not None]
        assert len(inserted) == len(insertions_in(views[1]) - insertions_in(views[0]))


@settings(max_examples=some(8, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_why_diff_and_lost_agree_with_every_request(steps: list[tuple[str, Any]]) -> None:
    asyncio.run(check(steps))
