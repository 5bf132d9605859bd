"""The request view's fold over events that later commands will write, given as records."""

from __future__ import annotations

import os
from typing import Any

from eventctx import Context
from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.codec import decode_event, encode_event
from eventctx.log.events import Event, Located
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.log.record import Body, Draft
from eventctx.log.store import ANY
from eventctx.projections.view import planned, request_view
from eventctx.queries.requests import fold, request_at
from tests.session.given import calling, opened, result, texts
from tests.sessions import append_event, body_of, compacted_by_hand, model, tool_round, user
from tests.transcripts import refusal


async def thirty(**options: Any) -> tuple[Engine, Context]:
    """A task, 28 messages of a model, and a person's last."""
    rows = [model(f"message {number}") for number in range(30)]
    rows[0], rows[29] = user("message 0"), user("message 29")
    return await opened(*rows, policy="simple", **options)


async def compacted() -> Engine:
    """Thirty messages, of which the task and the last ten are in view."""
    engine, ctx = await thirty()
    await ctx.compact()
    return engine


async def given(engine: Engine, event: Event, *bodies: Body) -> int:
    """Append an event as a later release would; returns its position."""
    return await append_event(engine.store, event, *bodies)


async def seen(engine: Engine) -> list[str]:
    ctx = await Engine(engine.store).session("s", policy="simple")
    return texts(await ctx.get_messages_for_request())


async def located(engine: Engine, number: int) -> Located:
    message = (await engine.transcript("s"))[number]
    async for record in engine.records("s", message.position, message.position):
        body = record.bodies[0]
        return Located(number, message.position, 0, body.digest, body.facts)
    raise AssertionError


async def test_a_restored_message_is_in_view_again_in_its_place_once_and_an_erasure_breaks() -> (
    None
):
    engine = await compacted()
    assert (await seen(engine))[:2] == ["message 0", "message 20"]
    pair = (await located(engine, 7), await located(engine, 3))
    await given(engine, events.Restored(messages=pair))
    assert (await seen(engine))[1:4] == ["message 3", "message 7", "message 20"]
    row = (await engine.audit("s")).requests[-1]
    assert row.breaks == ("restore",)
    assert (row.counts.kept, row.counts.dropped) == (13, 17)
    # Restoring what is in view already changes nothing.
    again = await located(engine, 25)
    for _ in range(2):
        await given(engine, events.Restored(messages=(again,)))
    assert len(await seen(engine)) == 13
    assert sum((await engine.audit("s")).requests[-1].counts) == 30
    await given(engine, events.Erased(numbers=(25,), bodies=((26, 0),)))
    await seen(engine)
    assert (await engine.audit("s")).requests[-1].breaks == ("erase",)


async def test_pins_hold_through_a_compaction_until_they_are_taken_away() -> None:
    engine, ctx = await thirty()
    await ctx.pin(2, 4)
    await ctx.unpin(4)
    await ctx.compact()
    assert (await seen(engine))[:2] == ["message 0", "message 2"]
    assert (await fold(engine.store, "s", request_view)).pins == {2}
    await ctx.get_messages()  # the other engine's request is seen by now
    await ctx.set_messages([user("fresh")])
    assert (await fold(engine.store, "s", request_view)).pins == frozenset()


async def test_a_request_may_have_insertions_of_its_own() -> None:
    engine = await compacted()
    state = await fold(engine.store, "s", request_view)
    body = body_of({"role": "system", "content": "Be brief."}, os.urandom)
    insertion = Insertion("system_prompt", 0)
    name, version, payload = encode_event(request_view.prepare_request(state))
    draft = Draft(os.urandom(16), name, version, 0, payload, (body,))
    # Prepared twice: the digest is known only once the insertion has its record.
    first = await engine.store.append("s", [draft], ANY)
    shown = planned.with_insertions(state, (insertion,), first.records[0])
    digest, entries, tokens = shown.layout.measure()
    event = events.RequestPrepared(1, 29, entries, tokens, digest, insertions=(insertion,))
    position = await given(engine, event, body)
    view = await request_at(engine.store, "s", position)
    assert view.verified
    assert view.messages[0] == {"role": "system", "content": "Be brief."}
    assert len(view.messages) == 12


async def test_a_summary_goes_with_what_it_stands_for() -> None:
    engine = await compacted()
    ctx = await Engine(engine.store).session("s", policy="simple")
    body = body_of(user("[a secret plan]"), os.urandom)
    plan = Plan(29, (Run(0, 28, "summarised", "summary"), Run(29, 29, "kept", "recent")))
    summary = Insertion("summary", 0, None, None, ((0, 28),))
    await given(engine, compacted_by_hand(Plan(plan.through, plan.runs, (), (summary,))), body)
    assert (await seen(engine))[0] == "[a secret plan]"
    (*_, last) = await ctx.get_messages()
    await ctx.set_messages([last])
    assert await ctx.get_messages_for_request() == [last]


async def test_a_summary_outlives_a_later_compaction_of_what_follows() -> None:
    engine, _ctx = await thirty()
    body = body_of(user("In short: all went well."), os.urandom)
    plan = Plan(
        through=29,
        runs=(Run(0, 19, "summarised", "summary"), Run(20, 29, "kept", "recent")),
        insertions=(Insertion("summary", 0, None, None, ((0, 19),)),),
    )
    await given(engine, compacted_by_hand(plan, messages_after=11), body)
    assert (await seen(engine))[:2] == ["In short: all went well.", "message 20"]
    again = await Engine(engine.store).session("s", policy="simple", keep_recent=4)
    await again.compact()
    assert (await seen(engine))[:2] == ["In short: all went well.", "message 26"]
    row = (await engine.audit("s")).requests[-1]
    assert (row.counts.summarised, row.counts.dropped, row.insertions) == (20, 6, 1)
    record = [r async for r in engine.records("s") if r.type == "context:post_compact"][-1]
    later: Any = decode_event(record)
    assert later.plan.insertions[0].at is not None
    assert record.bodies == ()


async def test_a_round_comes_back_in_the_order_of_the_transcript_also_behind_a_set() -> None:
    call, done = tool_round(1)
    rows = [user("go"), call, done, *[user(one) for one in "abcd"]]
    engine, ctx = await opened(*rows, policy="simple", keep_recent=2)
    edited = await ctx.get_messages()
    edited[1]["content"][0]["input"] = {"edited": 1}
    await ctx.set_messages(edited)
    await ctx.compact()
    # The call has a new number, the result its old, lower one.
    assert await ctx.restore(2) == (7, 2)
    view = await ctx.get_messages_for_request()
    assert refusal(view) is None
    assert done in view
    (row,) = (await engine.audit("s")).requests
    assert row.counts.omitted == 0


async def test_shortened_results_whose_call_a_set_took_out_count_once() -> None:
    rounds = [row for number in range(3) for row in tool_round(number, 6_000)]
    options: dict[str, Any] = {"max_tokens": 2_000, "protected_tool_results": 0}
    engine, ctx = await opened(user("go"), *rounds, user("on"), **options)
    await ctx.get_messages_for_request()
    await ctx.set_messages([m for m in await ctx.get_messages() if m["role"] == "user"])
    await ctx.get_messages_for_request()
    counts = (await engine.audit("s")).requests[-1].counts
    assert min(counts) >= 0 and sum(counts) == 5


async def test_a_late_answer_to_a_reused_call_id_is_a_recorded_break() -> None:
    asks = calling("x")
    engine, ctx = await opened(user("go"), asks, user("again"), asks, model("on"))
    before = await ctx.get_messages_for_request()
    await ctx.add_message(result("x", "late"))
    after = await ctx.get_messages_for_request()
    row = (await engine.audit("s")).requests[-1]
    assert after[: len(before)] == before or row.breaks == ("late_result",)
    assert row.breaks == ("late_result",)


async def test_a_set_keeps_the_thinking_that_the_host_brings() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "k"}
    text = {"type": "text", "text": "one"}
    old = {"role": "assistant", "content": [thinking, text]}
    new = {"role": "assistant", "content": [thinking, {"type": "text", "text": "two"}]}
    _, ctx = await opened(user("old"), user("q"), old)
    await ctx.set_messages([user("q"), old, new])
    view = await ctx.get_messages_for_request()
    assert view[1:] == [{"role": "assistant", "content": [text]}, new]
