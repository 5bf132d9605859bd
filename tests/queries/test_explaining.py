"""Why a message is in a view or not: every answer, and what cannot be asked."""

from __future__ import annotations

import pytest

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.log import events
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.policies.named import policy_named
from eventctx.projections.timeline import fold as timeline
from eventctx.projections.timeline.document import callers
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.queries.explained import compacted, model, thirty, user
from tests.sessions import append_event, tool_round

# -- one message ---------------------------------------------------------------------------------


async def test_a_dropped_message_names_its_compaction_rule_and_setting() -> None:
    engine, ctx = await thirty()
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 4}), reason="too long")
    why = await engine.why("s", 3)
    assert (why.standing, why.in_view) == ("dropped", False)
    assert why.ruling is not None
    assert why.ruling.reason == "older"
    assert why.ruling.rule == "older than the most recent messages that the policy keeps"
    assert why.ruling.settings == {"keep_recent": 4}
    compaction = why.ruling.cause.compaction
    assert compaction is not None
    assert (compaction.trigger, compaction.strategy) == ("manual", "simple")
    assert compaction.asked_because == "too long"
    record = [r async for r in engine.records("s") if r.type == "context:post_compact"][-1]
    assert (why.ruling.cause.position, why.ruling.cause.time) == (record.position, record.time)
    assert (why.message, why.shows, why.stands_in) == (model("message 3"), None, ())


async def test_one_that_stayed_says_by_which_rule() -> None:
    engine, ctx = await thirty()
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 4}))
    why = await engine.why("s", 28)
    assert (why.standing, why.ruling) == ("whole", None)
    assert why.stays is not None
    assert (why.stays.reason, why.stays.settings) == ("recent", {"keep_recent": 4})
    latest = await engine.why("s", 29)
    assert latest.stays is not None
    assert (latest.stays.reason, latest.stays.settings) == ("latest_human", {})


async def test_the_answer_is_about_the_request_that_was_named() -> None:
    engine, ctx = await thirty()
    await ctx.compact()
    async with ctx.turn():
        await ctx.add_message(user("later"))
        await ctx.get_messages_for_request()
    assert (await engine.why("s", 3, turn=1)).standing == "whole"
    assert (await engine.why("s", 3, turn=2)).standing == "dropped"
    early = await engine.why("s", 30, turn=1)
    assert (early.standing, early.message) == ("not_added", None)
    assert early.added is not None
    assert early.added.turn == 2
    [first, second] = (await engine.audit("s")).requests
    assert (await engine.why("s", 3, position=first.position)).in_view
    assert not (await engine.why("s", 3, position=second.position)).in_view


async def test_a_restored_message_is_whole_until_it_is_taken_out_again() -> None:
    engine, ctx = await thirty()
    await ctx.compact()
    await ctx.restore(3)
    back = await engine.why("s", 3)
    assert (back.standing, back.stays, back.ruling) == ("whole", None, None)
    assert back.restored is not None
    assert (await engine.why("s", 29)).restored is None
    await ctx.compact()
    again = await engine.why("s", 3)
    assert again.standing == "dropped"
    assert again.restored == back.restored
    assert again.ruling is not None
    assert again.ruling.cause.position > back.restored.position


async def test_a_pin_is_told_with_the_record_that_made_it() -> None:
    engine, ctx = await thirty()
    await ctx.pin(3)
    await ctx.pin(3)
    await ctx.compact()
    why = await engine.why("s", 3)
    assert (why.standing, why.pinned) == ("whole", True)
    assert why.stays is not None
    assert why.stays.reason == "pinned"
    pins = [r.position async for r in engine.records("s") if r.type == "context:pinned"]
    assert why.pinned_by is not None
    assert why.pinned_by.position == pins[0]
    await ctx.unpin(3)
    assert not (await engine.why("s", 3)).pinned


async def test_a_summary_stands_for_what_it_covers_until_it_leaves_the_view() -> None:
    engine, _ = await thirty()
    summary = Insertion("summary", 0, None, None, ((0, 19),))
    runs = (Run(0, 19, "summarised", "summary"), Run(20, 29, "kept", "recent"))
    at = await compacted(engine, Plan(29, runs, (), (summary,)), "In short.")
    why = await engine.why("s", 7)
    assert why.standing == "summarised"
    assert [(one.kind, one.position, one.stands_for) for one in why.stands_in] == [
        ("summary", at, ((0, 19),))
    ]
    assert why.stands_in[0].message == user("In short.")
    await compacted(engine, Plan(29, (Run(20, 29, "kept", "recent"),)))
    later = await engine.why("s", 7)
    assert (later.standing, later.stands_in, later.ruling) == ("summarised", (), why.ruling)


async def test_a_merged_message_names_the_one_that_stands_for_it() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", policy="simple")
    for row in (user("hello"), model("go on"), user("other"), model("go on"), user("end")):
        await ctx.add_message(row)
    await ctx.compact()
    why = await engine.why("s", 1)
    assert (why.standing, why.into, why.into_in_view) == ("merged", 3, True)
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 1}))
    later = await engine.why("s", 1)
    assert (later.ruling, later.into_in_view) == (why.ruling, False)


async def test_a_result_without_a_call_in_view_says_what_became_of_the_call() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    await ctx.add_message(user("hello"))
    call, result = tool_round(1)
    await ctx.add_message(tool_round(9)[1])
    orphan = await engine.why("s", 1)
    assert (orphan.standing, orphan.caller, orphan.in_view) == ("omitted", None, False)
    await ctx.add_message(call)
    await ctx.add_message(result)
    assert (await engine.why("s", 3)).standing == "whole"
    rows = await ctx.get_messages()
    await ctx.set_messages([rows[0], rows[3]])
    bereft = await engine.why("s", 3)
    assert (bereft.standing, bereft.caller) == ("omitted", 2)
    assert bereft.ruling is not None
    assert bereft.ruling.disposition == "set"


async def test_a_result_by_name_is_told_the_message_that_calls_its_tool() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    call = {"id": "call_a", "function": {"name": "read", "arguments": {}}}
    result = {"role": "tool", "tool_name": "read", "content": "read"}
    await ctx.add_message(user("hello"))
    await ctx.add_messages([{**model(""), "tool_calls": [call, call]}, result, result])
    origins = (await fold(engine.store, "s", timeline)).changes.origins
    assert callers(origins) == [-1, -1, 1, 1]
    assert callers(origins, 3) == [1]
    await ctx.set_messages([user("hello"), result])
    assert (await engine.why("s", 3)).caller == 1


async def test_a_shortened_message_shows_what_is_left_of_it() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", max_tokens=4_000, policy="ladder")
    await ctx.add_message(user("hello"))
    for number in range(12):
        for message in tool_round(number, 2_000):
            await ctx.add_message(message)
    await ctx.add_message(user("go on"))
    await ctx.get_messages_for_request()
    found = [await engine.why("s", number) for number in range(26)]
    why = next(one for one in found if one.standing == "shortened")
    assert why.in_view
    assert why.ruling is not None
    assert why.ruling.reason == "old_result"
    assert {"truncate_chars", "target"} <= why.ruling.settings.keys()
    assert why.message == tool_round(why.number // 2 - 1, 2_000)[1]
    assert why.shows is not None
    assert len(str(why.shows)) < len(str(why.message))
    await ctx.restore(why.number)
    whole = await engine.why("s", why.number)
    assert (whole.standing, whole.ruling, whole.shows) == ("whole", None, whole.message)
    assert whole.restored is not None
    assert whole.restored.type == "context:restored"


async def test_thinking_that_a_restore_left_out_is_told_of_its_own_message_alone() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", policy="simple", keep_recent=4, max_tokens=8_000)
    for number in range(8):
        thought = {"type": "thinking", "thinking": "hm" * 50, "signature": "c2ln"}
        said = {"type": "text", "text": f"answer {number}"}
        await ctx.add_message(user(f"question {number} " + "more " * 400))
        await ctx.add_message({"role": "assistant", "content": [thought, said]})
    await ctx.compact()
    for number in (4, 5):
        assert (await engine.why("s", number)).standing == "dropped"
        await ctx.restore(number)
    answer, question = await engine.why("s", 5), await engine.why("s", 4)
    assert answer.stripped is not None
    assert answer.stripped.cause.type == "context:restored"
    assert question.stripped is None


async def test_a_fallback_is_named_and_lends_nobody_its_settings() -> None:
    async def summarizer(request: object) -> str:
        raise RuntimeError("no network")

    engine = Engine(MemoryStore())
    ctx = await engine.session("s", max_tokens=3_000, policy="summarize", summarizer=summarizer)
    await ctx.add_message(user("hello"))
    for number in range(12):
        for message in tool_round(number, 2_000):
            await ctx.add_message(message)
    await ctx.get_messages_for_request()
    changed = [
        why for number in range(24) if (why := await engine.why("s", number)).ruling is not None
    ]
    assert changed
    for why in changed:
        assert why.ruling is not None
        compaction = why.ruling.cause.compaction
        assert compaction is not None
        assert compaction.fallback == "ladder"
        assert "no network" in (compaction.error or "")
        assert why.ruling.settings.keys() <= {"budget", "threshold", "target"}


# -- what is asked for must be there -------------------------------------------------------------


async def test_a_number_outside_the_session_is_refused_with_the_range() -> None:
    engine, _ = await thirty()
    with pytest.raises(InvalidSetting, match="has messages #0 to #29, found #30"):
        await engine.why("s", 30)
    for bad in (-1, "3", 1.5, True, None):
        with pytest.raises(InvalidSetting, match="message number: expected an int from 0"):
            await engine.why("s", bad)  # type: ignore[arg-type]


async def test_a_request_that_is_not_there_is_refused() -> None:
    engine, ctx = await thirty()
    async with ctx.turn():
        await ctx.add_message(user("no request in this turn"))
    with pytest.raises(InvalidSetting, match="has turns 1 to 2, found 3"):
        await engine.why("s", 0, turn=3)
    with pytest.raises(InvalidSetting, match="turn 2 of session 's' has no request"):
        await engine.lost("s", turn=2)
    with pytest.raises(InvalidSetting, match="no request in iteration 5"):
        await engine.diff("s", 1, (1, 5))
    with pytest.raises(InvalidSetting, match="found context:message_added"):
        await engine.why("s", 0, position=3)
    with pytest.raises(InvalidSetting, match="found nothing"):
        await engine.why("s", 0, position=300)
    with pytest.raises(InvalidSetting, match="one name of it, found turn and position"):
        await engine.why("s", 0, turn=1, position=3)
    with pytest.raises(InvalidSetting, match="counts within a turn"):
        await engine.why("s", 0, iteration=1)
    with pytest.raises(InvalidSetting, match="turn: expected an int"):
        await engine.diff("s", "1", 2)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="by: expected 'turn' or 'position'"):
        await engine.diff("s", 1, 1, by="number")  # type: ignore[arg-type]


async def test_an_erased_message_says_so() -> None:
    engine, _ = await thirty()
    await append_event(engine.store, events.Erased(numbers=(3,), bodies=((4, 0),)))
    assert (await engine.why("s", 3)).erased is not None


async def test_a_fork_answers_for_what_it_inherits() -> None:
    engine, ctx = await thirty()
    await ctx.compact()
    await engine.fork("s", (await engine.why("s", 3)).ruling.cause.position, "child")  # type: ignore[union-attr]
    why = await engine.why("child", 3)
    assert (why.standing, why.session) == ("dropped", "child")
    assert (await engine.why("child", 3, turn=1)).in_view


async def test_an_unknown_session_is_refused() -> None:
    engine = Engine(MemoryStore())
    for call in (engine.why("x", 0), engine.lost("x"), engine.diff("x", 1, 2), engine.dry_run("x")):
        with pytest.raises(StreamNotFound):
            await call
