"""What two requests, and two sessions, have in common and what not."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings

import eventctx
from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.policies.named import policy_named
from eventctx.projections.presence import Presence
from eventctx.queries.session_diff import SessionsDiff, difference_of_sessions
from eventctx.queries.view import last_request
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.queries.explained import model, thirty, user
from tests.queries.test_explaining_any_session import STEPS, in_short, play
from tests.sessions import tool_round


async def compared(engine: Engine, one: str, other: str) -> SessionsDiff:
    names = [(name, await last_request(engine.store, name)) for name in (one, other)]
    return await difference_of_sessions(engine.store, names[0], names[1])


async def forked(engine: Engine, session: str, name: str) -> eventctx.Context:
    """A fork of a session at its head."""
    info = await engine.store.head(session)
    assert info is not None
    await engine.fork(session, info.head, name)
    return await engine.session(name)


async def said(engine: Engine, session: str, texts: list[str]) -> None:
    ctx = await engine.session(session)
    for text in texts:
        await ctx.add_message(user(text))
        await ctx.add_message(model(f"{text}: done"))
    await ctx.add_message(user("and now?"))
    await ctx.get_messages_for_request()


async def test_a_fork_that_compacted_lacks_what_its_parent_shows_and_says_why() -> None:
    async with eventctx.open() as engine:
        await said(engine, "a", [f"step {at}" for at in range(8)])
        fork = await forked(engine, "a", "b")
        await fork.compact(policy=policy_named("simple", {"keep_recent": 4}))
        await fork.add_message(user("only here"))
        await fork.get_messages_for_request()
        found = await compared(engine, "a", "b")
    first = [one for one in found.differences if one.session == "first"]
    assert first and all(one.presence == "dropped" and one.number == one.other for one in first)
    assert {one.ruling.reason for one in first if one.ruling} == {"older"}
    assert first[0].message == model("step 0: done")
    [second] = [one for one in found.differences if one.session == "second"]
    assert (second.number, second.other, second.presence) == (17, None, Presence.NOT_ADDED)
    assert second.message == user("only here")
    assert found.both + len(first) == 17


async def test_messages_of_unrelated_sessions_are_the_same_where_their_bytes_are() -> None:
    async with eventctx.open() as engine:
        await said(engine, "a", ["first", "shared", "twice", "twice"])
        await said(engine, "b", ["shared", "twice", "last"])
        found = await compared(engine, "a", "b")
    for which, names in (("first", ["first", "twice"]), ("second", ["last"])):
        only = [one.message for one in found.differences if one.session == which]
        assert only == [row for one in names for row in (user(one), model(f"{one}: done"))]
    assert found.both == 5


async def test_a_message_that_one_session_shows_shortened_is_told_apart() -> None:
    async with eventctx.open() as engine:
        for name, room in (("a", 100_000), ("b", 3_000)):
            ctx = await engine.session(name, max_tokens=room)
            await ctx.add_messages([user("read it"), *tool_round(1, 63_000)])
            await ctx.get_messages_for_request()
        found = await compared(engine, "a", "b")
    [one] = found.differences
    assert (one.session, one.number, one.presence) == ("first", 2, Presence.SHORTENED)
    assert one.ruling is not None
    assert found.both == 2


@given(STEPS)
@settings(max_examples=some(20, 200), deadline=None, suppress_health_check=list(HealthCheck))
async def test_a_fork_at_the_head_shows_the_same_as_its_parent(steps) -> None:
    engine = Engine(MemoryStore())
    options = {"max_tokens": 3_000, "on_overflow": "send_floor", "summarizer": in_short}
    ctx = await engine.session("s", policy="ladder", **options)
    await play(ctx, steps)
    await ctx.add_message(user("last"))
    await ctx.get_messages_for_request()
    last = await last_request(engine.store, "s")
    await forked(engine, "s", "t")
    found = await difference_of_sessions(engine.store, ("s", last), ("t", last))
    assert (found.differences, found.insertions) == ((), ())
    assert found.first.entries == found.second.entries


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


async def test_a_dry_run_leaves_a_compaction_that_a_crash_left_open_as_it_is() -> None:
    engine, _ = await thirty()
    by_hand = {"trigger": "manual", "strategy": "simple", "strategy_version": 1}
    name, version, payload = encode_event(events.PreCompact(**by_hand, tokens=9, messages=30))  # type: ignore[arg-type]
    draft = Draft(os.urandom(16), name, version, 0, payload, span_id="a" * 16)
    await engine.store.append("s", [draft], ANY)
    other = Engine(engine.store)
    head = (await other.sessions())[0].head
    await other.dry_run("s")
    await other.why("s", 0)
    assert (await other.sessions())[0].head == head
