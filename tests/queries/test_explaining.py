"""Why a message is in a view or not, and what requests and sessions have in common."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.policies.named import policy_named
from eventctx.projections.presence import Presence
from eventctx.projections.timeline import fold as timeline
from eventctx.projections.timeline.document import callers
from eventctx.queries.requests import fold
from eventctx.queries.session_diff import SessionsDiff, difference_of_sessions
from eventctx.queries.view import last_request
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.policies.advisers import Scripted
from tests.queries.explained import compacted, model, session, thirty, user
from tests.queries.test_explaining_any_session import STEPS, in_short, play
from tests.sessions import append_event, tool_round

# -- one message ---------------------------------------------------------------------------------


async def test_a_message_names_the_compaction_rule_and_setting_by_which_it_left_or_stayed() -> None:
    engine, ctx = await thirty()
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 4}), reason="too long")
    why = await engine.why("s", 3)
    assert (why.standing, why.in_view) == ("dropped", False)
    assert why.ruling and why.ruling.reason == "older"
    assert why.ruling.rule == "older than the most recent messages that the policy keeps"
    assert why.ruling.settings == {"keep_recent": 4}
    compaction = why.ruling.cause.compaction
    assert compaction and (compaction.trigger, compaction.strategy) == ("manual", "simple")
    assert compaction.asked_because == "too long"
    record = [r async for r in engine.records("s") if r.type == "context:post_compact"][-1]
    assert (why.ruling.cause.position, why.ruling.cause.time) == (record.position, record.time)
    assert (why.message, why.shows, why.stands_in) == (model("message 3"), None, ())
    for number, reason, known in ((28, "recent", {"keep_recent": 4}), (29, "latest_human", {})):
        why = await engine.why("s", number)
        assert (why.standing, why.ruling) == ("whole", None)
        assert why.stays and (why.stays.reason, why.stays.settings) == (reason, known)


async def test_answers_are_of_the_requests_named_and_say_what_left_and_came_back() -> None:
    engine, ctx = await thirty()
    await ctx.compact()
    async with ctx.turn():
        await ctx.add_message(user("later"))
        await ctx.get_messages_for_request()
    await ctx.restore(3)
    async with ctx.turn():
        await ctx.get_messages_for_request()
    assert (await engine.why("s", 3, turn=1)).standing == "whole"
    assert (await engine.why("s", 3, turn=2)).standing == "dropped"
    early = await engine.why("s", 30, turn=1)
    assert (early.standing, early.message) == ("not_added", None)
    assert early.added and early.added.turn == 2
    [a, b, c] = (await engine.audit("s")).requests
    assert (await engine.why("s", 3, position=a.position)).in_view
    assert not (await engine.why("s", 3, position=b.position)).in_view
    first = await engine.diff("s", 1, 2)
    assert [one.number for one in first.of("dropped")] == list(range(1, 20))  # but for the task
    assert [(one.number, one.message) for one in first.of("entered")] == [(30, user("later"))]
    assert all(one.ruling and one.ruling.reason == "older" for one in first.of("dropped"))
    second = await engine.diff("s", 2, 3)
    assert [(one.number, one.kind) for one in second.differences] == [(3, "restored")]
    assert await engine.diff("s", 3, 2) == second
    assert await engine.diff("s", a.position, b.position, by="position") == first
    assert (await engine.diff("s", 3, 3)).differences == ()
    assert (second.before.tokens, second.after.tokens) == (b.tokens, c.tokens)
    for side in (first.before, first.after, second.after):
        assert sum(side.groups.values()) == side.figures.messages
    # A restored message is whole until it is taken out again.
    back = await engine.why("s", 3)
    assert (back.standing, back.stays, back.ruling) == ("whole", None, None)
    assert back.restored and (await engine.why("s", 29)).restored is None
    await ctx.compact()
    again = await engine.why("s", 3)
    assert (again.standing, again.restored) == ("dropped", back.restored)
    assert again.ruling and again.ruling.cause.position > back.restored.position


async def test_a_pin_has_the_record_that_made_it_an_erasure_is_said_and_a_fork_inherits() -> None:
    engine, ctx = await thirty()
    await ctx.pin(5)
    await ctx.pin(5)
    await ctx.compact()
    why = await engine.why("s", 5)
    assert (why.standing, why.pinned) == ("whole", True)
    assert why.stays and why.stays.reason == "pinned"
    pins = [r.position async for r in engine.records("s") if r.type == "context:pinned"]
    assert why.pinned_by and why.pinned_by.position == pins[0]
    await engine.fork("s", (await engine.why("s", 3)).ruling.cause.position, "child")  # type: ignore[union-attr]
    why = await engine.why("child", 3)
    assert (why.standing, why.session) == ("dropped", "child")
    assert (await engine.why("child", 3, turn=1)).in_view
    await ctx.unpin(5)
    assert not (await engine.why("s", 5)).pinned
    await append_event(engine.store, events.Erased(numbers=(3,), bodies=((4, 0),)))
    assert (await engine.why("s", 3)).erased is not None


async def test_a_summary_stands_for_what_it_covers_until_it_leaves_the_view() -> None:
    engine, _ = await thirty()
    summary = Insertion("summary", 0, None, None, ((0, 19),))
    runs = (Run(0, 19, "summarised", "summary"), Run(20, 29, "kept", "recent"))
    at = await compacted(engine, Plan(29, runs, (), (summary,)), "In short.")
    why = await engine.why("s", 7)
    (one,) = why.stands_in
    assert (why.standing, one.message) == ("summarised", user("In short."))
    assert (one.kind, one.position, one.stands_for) == ("summary", at, ((0, 19),))
    await compacted(engine, Plan(29, (Run(20, 29, "kept", "recent"),)))
    later = await engine.why("s", 7)
    assert (later.standing, later.stands_in, later.ruling) == ("summarised", (), why.ruling)


async def test_a_merged_message_names_the_one_that_stands_for_it() -> None:
    rows = (user("hello"), model("go on"), user("other"), model("go on"), user("end"))
    engine, ctx = await session(*rows, policy="simple")
    await ctx.compact()
    why = await engine.why("s", 1)
    assert (why.standing, why.into, why.into_in_view) == ("merged", 3, True)
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 1}))
    later = await engine.why("s", 1)
    assert (later.ruling, later.into_in_view) == (why.ruling, False)


async def test_a_result_without_a_call_in_view_says_what_became_of_the_call() -> None:
    engine, ctx = await session(user("hello"), tool_round(9)[1])
    orphan = await engine.why("s", 1)
    assert (orphan.standing, orphan.caller, orphan.in_view) == ("omitted", None, False)
    for row in tool_round(1):
        await ctx.add_message(row)
    assert (await engine.why("s", 3)).standing == "whole"
    rows = await ctx.get_messages()
    await ctx.set_messages([rows[0], rows[3]])
    bereft = await engine.why("s", 3)
    assert (bereft.standing, bereft.caller) == ("omitted", 2)
    assert bereft.ruling and bereft.ruling.disposition == "set"


async def test_a_result_by_name_is_told_the_message_that_calls_its_tool() -> None:
    call = {"id": "call_a", "function": {"name": "read", "arguments": {}}}
    result = {"role": "tool", "tool_name": "read", "content": "read"}
    calls = {**model(""), "tool_calls": [call, call]}
    engine, ctx = await session(user("hello"), calls, result, result)
    origins = (await fold(engine.store, "s", timeline)).changes.origins
    assert callers(origins) == [-1, -1, 1, 1]
    assert callers(origins, 3) == [1]
    await ctx.set_messages([user("hello"), result])
    assert (await engine.why("s", 3)).caller == 1


ROUNDS = [user("hello"), *(row for number in range(12) for row in tool_round(number, 2_000))]


async def test_a_shortened_message_shows_what_is_left_of_it() -> None:
    engine, ctx = await session(*ROUNDS, user("go on"), max_tokens=4_000, policy="ladder")
    await ctx.get_messages_for_request()
    found = [await engine.why("s", number) for number in range(26)]
    why = next(one for one in found if one.standing == "shortened")
    assert why.in_view
    assert why.ruling and why.ruling.reason == "old_result"
    assert {"truncate_chars", "target"} <= why.ruling.settings.keys()
    assert why.message == ROUNDS[why.number]
    assert why.shows and len(str(why.shows)) < len(str(why.message))
    await ctx.restore(why.number)
    whole = await engine.why("s", why.number)
    assert (whole.standing, whole.ruling, whole.shows) == ("whole", None, whole.message)
    assert whole.restored and whole.restored.type == "context:restored"


async def test_thinking_that_a_restore_left_out_is_told_of_its_own_message_alone() -> None:
    thought = {"type": "thinking", "thinking": "hm" * 50, "signature": "c2ln"}
    engine, ctx = await session(policy="simple", keep_recent=4, max_tokens=8_000)
    for number in range(8):
        said = {"type": "text", "text": f"answer {number}"}
        await ctx.add_message(user(f"question {number} " + "more " * 400))
        await ctx.add_message({"role": "assistant", "content": [thought, said]})
    await ctx.compact()
    for number in (4, 5):
        assert (await engine.why("s", number)).standing == "dropped"
        await ctx.restore(number)
    answer, question = await engine.why("s", 5), await engine.why("s", 4)
    assert answer.stripped and answer.stripped.cause.type == "context:restored"
    assert question.stripped is None


async def test_a_fallback_is_named_and_lends_nobody_its_settings() -> None:
    down = Scripted(RuntimeError("no network"))
    engine, ctx = await session(*ROUNDS, max_tokens=3_000, policy="summarize", summarizer=down)
    await ctx.get_messages_for_request()
    rulings = [(await engine.why("s", number)).ruling for number in range(24)]
    changed = [one for one in rulings if one is not None]
    assert changed
    for ruling in changed:
        compaction = ruling.cause.compaction
        assert compaction and compaction.fallback == "ladder"
        assert "no network" in (compaction.error or "")
        assert ruling.settings.keys() <= {"budget", "threshold", "target"}


# -- what is asked for must be there -------------------------------------------------------------


async def test_what_is_not_there_is_refused() -> None:
    engine, ctx = await thirty()
    async with ctx.turn():
        await ctx.add_message(user("no request in this turn"))
    number = "message number: expected an int from 0"
    refused: list[tuple[Awaitable[Any], str]] = [
        (engine.why("s", 31), "has messages #0 to #30, found #31"),
        *((engine.why("s", bad), number) for bad in cast("Any", (-1, "3", 1.5, True, None))),
        (engine.why("s", 0, turn=3), "has turns 1 to 2, found 3"),
        (engine.lost("s", turn=2), "turn 2 of session 's' has no request"),
        (engine.diff("s", 1, (1, 5)), "no request in iteration 5"),
        (engine.why("s", 0, position=3), "found context:message_added"),
        (engine.why("s", 0, position=300), "found nothing"),
        (engine.why("s", 0, turn=1, position=3), "one name of it, found turn and position"),
        (engine.why("s", 0, iteration=1), "counts within a turn"),
        (engine.diff("s", cast("Any", "1"), 2), "turn: expected an int"),
        (engine.diff("s", 1, 1, by=cast("Any", "number")), "by: expected 'turn' or 'position'"),
    ]
    for question, said in refused:
        with pytest.raises(InvalidSetting, match=said):
            await question
    for call in (engine.why("x", 0), engine.lost("x"), engine.diff("x", 1, 2), engine.dry_run("x")):
        with pytest.raises(StreamNotFound):
            await call


# -- two sessions --------------------------------------------------------------------------------


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
    rounds = [(user(text), model(f"{text}: done")) for text in texts]
    await ctx.add_messages([*(row for pair in rounds for row in pair), user("and now?")])
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
