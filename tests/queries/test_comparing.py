"""What two requests differ in, what is lost, and what a compaction would do."""

from __future__ import annotations

import os

from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.policies.named import policy_named
from tests.queries.explained import thirty, user

# -- two requests --------------------------------------------------------------------------------


async def test_a_diff_says_what_entered_left_and_came_back() -> None:
    engine, ctx = await thirty()
    await ctx.compact()
    async with ctx.turn():
        await ctx.add_message(user("later"))
        await ctx.get_messages_for_request()
    await ctx.restore(3)
    async with ctx.turn():
        await ctx.get_messages_for_request()
    first = await engine.diff("s", 1, 2)
    assert [one.number for one in first.of("dropped")] == list(range(1, 20))  # but for the task
    assert [(one.number, one.message) for one in first.of("entered")] == [(30, user("later"))]
    assert all(one.ruling and one.ruling.reason == "older" for one in first.of("dropped"))
    second = await engine.diff("s", 2, 3)
    assert [(one.number, one.kind) for one in second.differences] == [(3, "restored")]
    assert await engine.diff("s", 3, 2) == second
    [a, b, c] = (await engine.audit("s")).requests
    assert await engine.diff("s", a.position, b.position, by="position") == first
    assert (await engine.diff("s", 3, 3)).differences == ()
    assert (second.before.tokens, second.after.tokens) == (b.tokens, c.tokens)
    for side in (first.before, first.after, second.after):
        assert sum(side.groups.values()) == side.figures.messages


# -- a compaction that is not made ---------------------------------------------------------------


async def test_a_dry_run_says_what_compact_then_does_and_writes_nothing() -> None:
    engine, ctx = await thirty()
    chosen = policy_named("simple", {"keep_recent": 4})
    before = [record.id async for record in engine.records("s")]
    would_be = await engine.dry_run("s", policy=chosen)
    assert [record.id async for record in engine.records("s")] == before
    done = await ctx.compact(policy=chosen)
    assert would_be.dry_run and not done.dry_run
    assert (would_be.plan, would_be.after_tokens) == (done.plan, done.after_tokens)


async def test_a_dry_run_leaves_a_compaction_that_a_crash_left_open_as_it_is() -> None:
    engine, _ = await thirty()
    began = events.PreCompact(
        trigger="manual", strategy="simple", strategy_version=1, tokens=9, messages=30
    )
    name, version, payload = encode_event(began)
    draft = Draft(os.urandom(16), name, version, 0, payload, span_id="a" * 16)
    await engine.store.append("s", [draft], ANY)
    other = Engine(engine.store)
    head = (await other.sessions())[0].head
    await other.dry_run("s")
    await other.why("s", 0)
    assert (await other.sessions())[0].head == head
