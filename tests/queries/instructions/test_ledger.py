"""The ledger of a person's demands in each request's view: held, absent, taken back, replaced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import AlreadyTakenBack, InvalidSetting, NoSuchDemand, StreamNotFound
from eventctx.log.plan import Insertion, Run
from eventctx.messages.superseding import find_superseded
from eventctx.policies.presets import Simple
from eventctx.projections.metrics import fold as metrics
from eventctx.projections.metrics import names
from eventctx.projections.trace import fold as trace
from eventctx.projections.trace import semconv
from eventctx.projections.view import request_view, snapshot
from eventctx.projections.view.refs import DemandRef
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.queries.instructions.given import (
    DROPPED,
    compact,
    counted,
    demand,
    model,
    request,
    rows_of,
    session,
    user,
)

SHORTENED = Run(0, 0, "shortened", "old_words")


async def views(engine: Engine) -> list[Any]:
    """Every request's view, as an answer to a question."""
    positions = [row.position for row in (await engine.audit("s")).requests]
    return [await engine.request_view("s", position=at) for at in positions]


async def last_request(engine: Engine) -> int | None:
    found: int | None = (await views(engine))[-1].prepared.demands_absent
    return found


async def test_every_demand_of_a_person_is_listed_with_its_message_and_sentence() -> None:
    engine, _ = await session()
    found = await engine.instructions("s")
    named = {one.name: one.text for one in found.instructions}
    assert named == {"#0.1": "Never touch the migrations.", "#0.2": "Please keep the old names."}
    assert counted(found) == {"verbatim": 2}
    assert (found.requests, found.known, found.absent) == (1, {"prepared": 1}, 0)
    assert rows_of(found.instructions[0]) == [("verbatim", "1.1", "1.1")]


async def test_a_demand_whose_message_was_dropped_is_absent_since_the_next_request() -> None:
    engine, ctx = await session()
    await compact(engine, DROPPED)
    now = await demand(engine, "#0.1")
    assert (now.stands, now.absent_since, now.is_absent) == ("absent", None, True)
    await request(ctx, 3)
    later = await demand(engine, "#0.1")
    assert (later.stands, later.absent_since) == ("absent", "2.1")
    assert rows_of(later) == [("verbatim", "1.1", "1.1"), ("absent", "2.1", "2.3")]
    assert (later.requests, later.held_in) == (4, 1)
    assert await last_request(engine) == 2


async def test_a_shortened_message_still_holds_the_sentences_that_are_left() -> None:
    engine, ctx = await session()
    await compact(engine, SHORTENED, shortened={0: user("[…] Please keep the old names.")})
    await request(ctx)
    found = await engine.instructions("s")
    assert [one.stands for one in found.instructions] == ["shortened", "verbatim"]
    assert found.absent == 1 == await last_request(engine)


async def test_a_summary_that_quotes_a_demand_holds_it_in_other_words_not() -> None:
    engine, ctx = await session()
    text = "So far:\n- Never touch\n  the migrations.\n- names stay as they were"
    at = await compact(engine, DROPPED, insertion=Insertion("summary", 0), text=text)
    await request(ctx)
    found = await engine.instructions("s")
    stand = [(one.stands, one.where) for one in found.instructions]
    assert stand == [("in_summary", f"@{at}"), ("absent", None)]


async def test_an_index_holds_the_demands_whose_words_it_has_and_not_those_it_claims() -> None:
    engine, ctx = await session()
    index = Insertion("notice", 0, demands=((0, 0),))
    await compact(engine, DROPPED, insertion=index, text="| #0: Never touch the migrations.")
    await request(ctx)
    found = await engine.instructions("s")
    assert [one.stands for one in found.instructions] == ["in_index", "absent"]


async def test_a_demand_is_in_view_again_once_it_was_said_again_or_brought_back() -> None:
    engine, ctx = await session()
    await compact(engine, DROPPED)
    await request(ctx, 2)
    await ctx.add_message(user("Again: never mind.\nNever touch the migrations."))
    await request(ctx)
    one = await demand(engine, "#0.1")
    assert (one.stands, one.where) == ("verbatim", "#3")
    until = [("verbatim", "1.1", "1.1"), ("absent", "2.1", "2.2"), ("verbatim", "3.1", "3.1")]
    assert rows_of(one) == until
    await ctx.restore(0)
    await request(ctx)
    held = [held for held, *_ in rows_of(await demand(engine, "#0.2"))]
    assert held == ["verbatim", "absent", "verbatim"]
    assert await last_request(engine) == 0


async def test_a_demand_holds_no_longer_once_its_message_left_the_transcript() -> None:
    engine, ctx = await session()
    await ctx.set_messages([user("go on")])
    await request(ctx)
    found = await engine.instructions("s")
    left = [(one.stands, one.left and one.left.by) for one in found.instructions]
    assert (left, found.left, found.absent) == ([(None, "set")] * 2, 2, 0)
    assert rows_of(found.instructions[0]) == [("verbatim", "1.1", "1.1")]
    await ctx.clear()
    await ctx.add_message(user("Now only use tabs."))
    assert (await demand(engine, "#3.1")).stands == "verbatim"
    # Of an erased message nothing is known but that it was there.
    await engine.erase("s", [0])
    found = await engine.instructions("s")
    assert ([one.name for one in found.instructions], found.erased) == (["#3.1"], 1)


async def test_an_answer_about_a_request_knows_nothing_of_what_came_behind_it() -> None:
    engine, ctx = await session()
    await compact(engine, DROPPED)
    await request(ctx)
    await ctx.restore(0)
    await ctx.add_message(user("Also, always run the linter."))
    await request(ctx)
    then = await engine.instructions("s", turn=2)
    assert (then.about, then.requests, counted(then)) == ("2.1", 2, {"absent": 2})
    assert counted(await engine.instructions("s")) == {"verbatim": 3}
    with pytest.raises(InvalidSetting, match="has turns 1 to 3, found 9"):
        await engine.instructions("s", turn=9)
    with pytest.raises(StreamNotFound):
        await engine.instructions("nowhere")


async def test_the_count_of_a_request_is_that_of_the_ledger() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=400, policy="simple")
        for number in range(16):
            async with ctx.turn() as turn, turn.iteration():
                await ctx.add_message(user(f"Step {number}. Never touch file_{number}.py. " * 3))
                await ctx.get_messages_for_request()
                await ctx.add_message(model("Done with it. " * 20))
        found = await views(engine)
        counts = [view.prepared.demands_absent for view in found]
        for view, count in zip(found, counts, strict=True):
            assert (await engine.instructions("s", position=view.position)).absent == count
        assert counts[0] == 0 and counts[-1] > 5


# -- the count of absent demands in traces and metrics ---------------------------------------------

ABSENT = semconv.INSTRUCTIONS_ABSENT


async def called(ctx: eventctx.Context) -> None:
    """A turn with one request and the call that sends it."""
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.get_messages_for_request()
        async with cycle.provider_call("m") as call:
            await call.usage(10, 1)


async def test_spans_and_measurements_say_how_many_demands_are_absent() -> None:
    engine, ctx = await session()
    await called(ctx)
    await compact(engine, DROPPED)
    await called(ctx)
    records = [record async for record in engine.records("s")]
    spans = list(trace.fold(records))
    chats = [one.attributes[ABSENT] for one in spans if one.name.startswith("chat")]
    turns = [one.attributes[ABSENT] for one in spans if one.name.startswith("invoke_agent")]
    assert (chats, turns) == ([0, 2], [0, 0, 2])
    found = [one for one in metrics.fold(records) if one.instrument is names.INSTRUCTIONS_ABSENT]
    assert [one.value for one in found] == [0, 0, 2]


NUMBERED = [
    st.tuples(st.just(what), st.integers(0, 20)) for what in ("restore", "take back", "cut")
]
ALONE = [st.just(("compact", 0)), st.just(("clear", 0)), st.just(("ask", 0))]
STEP = st.one_of(st.tuples(st.just("say"), st.integers(0, 5)), *NUMBERED, *ALONE)
STEPS = st.lists(STEP, min_size=6, max_size=25)


@settings(max_examples=some(20, 60), deadline=None)
@given(STEPS)
def test_the_count_of_a_request_is_not_below_the_ledgers(steps: list[tuple[str, int]]) -> None:
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
                    await ctx.set_messages((await ctx.get_messages())[number:])
                case "clear":
                    await ctx.clear()
                case _:
                    await ctx.get_messages_for_request()
        for view in await views(engine):
            absent = (await engine.instructions("s", position=view.position)).absent
            assert absent <= (view.prepared.demands_absent or 0)


# -- demands that were taken back ----------------------------------------------------------------


async def test_a_demand_is_taken_back_once_by_a_message_and_breaks_no_prefix() -> None:
    engine, ctx = await session()
    await ctx.add_message(user("Forget what I said of the migrations."))
    before = await ctx.get_messages_for_request()
    receipt = await ctx.withdraw_instruction(0, 1, by=3)
    one = await demand(engine, "#0.1")
    assert one.taken_back is not None
    assert (one.taken_back.by, one.taken_back.said_by) == ("#3", "person")
    assert one.taken_back.at == f"@{receipt.position}"
    assert (one.stands, one.is_absent) == (None, False)
    assert rows_of(one) == [("verbatim", "1.1", "@8")]
    other = await demand(engine, "#0.2")
    assert (other.stands, other.taken_back) == ("verbatim", None)
    assert await ctx.get_messages_for_request() == before
    last = (await engine.audit("s")).requests[-1]
    assert (await engine.request_view("s", position=last.position)).prepared.breaks == ()
    with pytest.raises(AlreadyTakenBack, match=r"#0\.1: expected an instruction that holds"):
        await ctx.withdraw_instruction(0, 1, by=2)
    assert (await engine.instructions("s")).taken_back == 1


async def test_a_demand_that_was_taken_back_does_not_count_as_absent() -> None:
    engine, ctx = await session()
    await compact(engine, DROPPED)
    await request(ctx)
    await ctx.withdraw_instruction(0, 1)
    await request(ctx)
    await ctx.withdraw_instruction(0, 2)
    await request(ctx)
    positions = [row.position for row in (await engine.audit("s")).requests]
    views = [await engine.request_view("s", position=at) for at in positions]
    assert [view.prepared.demands_absent for view in views] == [0, 2, 1, None]
    found = await engine.instructions("s")
    assert (found.taken_back, found.absent, counted(found)) == (2, 0, {})
    assert rows_of(found.instructions[1])[-1] == ("absent", "2.1", "3.1")


async def demands_lost(engine: Engine) -> list[str]:
    return [one.text for one in (await engine.lost("s")).items if one.kind == "instruction"]


async def test_policies_snapshots_and_lost_know_what_was_taken_back() -> None:
    engine, ctx = await session()
    await compact(engine, DROPPED)
    before = await demands_lost(engine)
    await ctx.withdraw_instruction(0, 1)
    state = await fold(engine.store, "s", request_view)
    assert state.spoken.demands == (DemandRef(0, 2, 0, 1, (1,)),)
    assert snapshot.load(snapshot.dump(state)).spoken == state.spoken
    (left,) = state.spoken.demands
    assert left.holding(("Never touch the migrations.", "Keep names.")) == ("Keep names.",)
    assert {*before} - {*await demands_lost(engine)} == {"Never touch the migrations."}
    await ctx.withdraw_instruction(0, 2)
    spoken = (await fold(engine.store, "s", request_view)).spoken
    assert (spoken.demands, spoken.withdrawn, spoken.task) == ((), ((0, 1), (0, 2)), 0)


@pytest.mark.parametrize(
    ("asked", "error", "found"),
    [
        ({"number": 9}, InvalidSetting, "expected a message of the transcript, found #9"),
        ({"number": 1}, NoSuchDemand, "#1.1: expected an instruction of a person, found 0 in"),
        ({"number": 0, "demand": 3}, NoSuchDemand, "found 2 in #0"),
        ({"number": 0, "by": 8}, InvalidSetting, "expected a message behind #0"),
        ({"number": 0, "by": 0}, InvalidSetting, "expected a message behind #0"),
        ({"number": 0, "demand": 0}, InvalidSetting, "demand: expected an int from 1, found 0"),
        ({"number": "0"}, InvalidSetting, "message number: expected an int from 0"),
        ({"number": 0, "said_by": "me"}, InvalidSetting, "expected 'person' or 'model'"),
    ],
)
async def test_what_is_no_demand_cannot_be_taken_back(
    asked: dict[str, Any], error: type[Exception], found: str
) -> None:
    engine, ctx = await session()
    with pytest.raises(error, match=found):
        await ctx.withdraw_instruction(**asked)
    assert (await engine.instructions("s")).taken_back == 0


# -- demands that a later one replaces -------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "later", "replaced"),
    [
        ("Keep the budget at 300.", "Sorry, keep the budget at 800.", True),
        ("Use imperial units.", "Use metric units now.", True),
        ("Always run the slow tests.", "Don't run the slow tests.", True),
        ("Never write to the log.", "ok, write to the log now", True),
        ("Never touch a.py here.", "Never touch b.py here.", False),
        ("Use tabs in the parser.", "Use spaces in the printer now.", False),
        ("Use the old names.", "Use the old names.", False),
        ("Keep the reports short.", "Keep the answers short.", False),
    ],
)
def test_the_same_words_with_another_value_replace_what_was_said_and_others_nothing(
    earlier: str, later: str, replaced: bool
) -> None:
    assert find_superseded([(0, earlier), (4, later)]) == ({0: 1} if replaced else {})


async def test_a_superseded_demand_counts_again_where_the_later_one_is_taken_back() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    await ctx.add_messages([user("Keep the budget at 300. Never touch main.py."), model("Yes.")])
    await request(ctx)
    await ctx.add_message(user("Keep the budget at 800."))
    await compact(engine, DROPPED)
    await request(ctx)
    found = await engine.instructions("s")
    one = await demand(engine, "#0.1")
    assert (one.superseded_by, one.stands, one.is_absent) == ("#2.1", None, False)
    assert rows_of(one) == [("verbatim", "1.1", "1.1")]
    assert (found.superseded, found.absent, counted(found)) == (1, 1, {"verbatim": 1, "absent": 1})
    lost = await demands_lost(engine)
    assert "Keep the budget at 300." not in lost and "Never touch main.py." in lost
    await ctx.restore(0)
    await ctx.withdraw_instruction(2, 1)
    assert (await demand(engine, "#0.1")).stands == "verbatim"
    assert found.superseded == 1
