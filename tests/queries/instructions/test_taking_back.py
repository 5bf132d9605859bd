"""Demands that were taken back or replaced by later ones."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import AlreadyTakenBack, InvalidSetting, NoSuchDemand
from eventctx.log.plan import Run
from eventctx.messages.superseding import find_superseded
from eventctx.projections.view import request_view, snapshot
from eventctx.projections.view.refs import DemandRef
from eventctx.projections.view.state import Spoken
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.queries.instructions.given import (
    compact,
    counted,
    demand,
    model,
    request,
    rows_of,
    session,
    user,
)

DROPPED = Run(0, 1, "dropped", "older")


async def spoken_of(engine: Engine) -> Spoken:
    spoken: Spoken = (await fold(engine.store, "s", request_view)).spoken
    return spoken


async def test_a_demand_that_was_taken_back_is_linked_to_the_message_that_does_it() -> None:
    engine, ctx = await session()
    await ctx.add_message(user("Forget what I said of the migrations."))
    receipt = await ctx.withdraw_instruction(0, 1, by=3)
    one = await demand(engine, "#0.1")
    assert one.taken_back is not None
    assert (one.taken_back.by, one.taken_back.said_by) == ("#3", "person")
    assert one.taken_back.at == f"@{receipt.position}"
    assert (one.stands, one.is_absent) == (None, False)
    assert rows_of(one) == [("verbatim", "1.1", "1.1")]
    other = await demand(engine, "#0.2")
    assert (other.stands, other.taken_back) == ("verbatim", None)


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


async def test_policies_are_not_shown_what_was_taken_back() -> None:
    engine, ctx = await session()
    await ctx.withdraw_instruction(0, 1)
    [left] = (await spoken_of(engine)).demands
    assert (left.demands, left.withdrawn) == (1, (1,))
    assert left.holding(("Never touch the migrations.", "Keep names.")) == ("Keep names.",)
    await ctx.withdraw_instruction(0, 2)
    spoken = await spoken_of(engine)
    assert (spoken.demands, spoken.withdrawn) == ((), ((0, 1), (0, 2)))
    assert spoken.task == 0


async def test_a_snapshot_knows_what_was_taken_back() -> None:
    engine, ctx = await session()
    await ctx.withdraw_instruction(0, 1)
    state = await fold(engine.store, "s", request_view)
    assert snapshot.load(snapshot.dump(state)).spoken == state.spoken
    assert state.spoken.demands == (DemandRef(0, 2, 0, 1, (1,)),)


async def test_lost_does_not_list_a_demand_that_was_taken_back() -> None:
    engine, ctx = await session()
    await compact(engine, DROPPED)
    told = [one.text for one in (await engine.lost("s")).items if one.kind == "instruction"]
    assert "Never touch the migrations." in told
    await ctx.withdraw_instruction(0, 1)
    told = [one.text for one in (await engine.lost("s")).items if one.kind == "instruction"]
    assert "Never touch the migrations." not in told
    assert "Please keep the old names." in told


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


async def test_a_demand_is_taken_back_once_only() -> None:
    engine, ctx = await session()
    await ctx.withdraw_instruction(0, 1)
    with pytest.raises(AlreadyTakenBack, match=r"#0\.1: expected an instruction that holds"):
        await ctx.withdraw_instruction(0, 1, by=2)
    assert (await demand(engine, "#0.1")).taken_back is not None
    assert (await engine.instructions("s")).taken_back == 1


async def test_taking_back_breaks_no_prefix() -> None:
    engine, ctx = await session()
    before = await ctx.get_messages_for_request()
    await ctx.withdraw_instruction(0, 1)
    assert await ctx.get_messages_for_request() == before
    last = (await engine.audit("s")).requests[-1]
    assert (await engine.request_view("s", position=last.position)).prepared.breaks == ()


# -- demands that a later one replaces -------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Keep the budget at 300.", "Sorry, keep the budget at 800."),
        ("Use imperial units.", "Use metric units now."),
        ("Always run the slow tests.", "Don't run the slow tests."),
        ("Never write to the log.", "ok, write to the log now"),
    ],
)
def test_the_same_words_with_another_value_replace_what_was_said(earlier: str, later: str) -> None:
    assert find_superseded([(0, earlier), (4, later)]) == {0: 1}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Never touch a.py here.", "Never touch b.py here."),
        ("Use tabs in the parser.", "Use spaces in the printer now."),
        ("Use the old names.", "Use the old names."),
        ("Keep the reports short.", "Keep the answers short."),
    ],
)
def test_other_words_and_other_things_replace_nothing(earlier: str, later: str) -> None:
    assert find_superseded([(0, earlier), (4, later)]) == {}


async def test_a_superseded_demand_is_marked_and_held_against_no_later_view() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    for row in (user("Keep the budget at 300. Never touch main.py."), model("Yes.")):
        await ctx.add_message(row)
    await request(ctx)
    await ctx.add_message(user("Keep the budget at 800."))
    await compact(engine, Run(0, 1, "dropped", "older"))
    await request(ctx)
    found = await engine.instructions("s")
    one = await demand(engine, "#0.1")
    assert (one.superseded_by, one.stands, one.is_absent) == ("#2.1", None, False)
    assert rows_of(one) == [("verbatim", "1.1", "1.1")]
    assert (found.superseded, found.absent, counted(found)) == (1, 1, {"verbatim": 1, "absent": 1})
    lost = [one.text for one in (await engine.lost("s")).items if one.kind == "instruction"]
    assert "Keep the budget at 300." not in lost
    assert "Never touch main.py." in lost


async def test_a_demand_holds_again_where_the_later_one_was_taken_back() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    for text in ("Keep the budget at 300.", "Keep the budget at 800."):
        await ctx.add_message(user(text))
    assert (await demand(engine, "#0.1")).superseded_by == "#1.1"
    earlier = await engine.instructions("s")
    await ctx.withdraw_instruction(1, 1)
    assert (await demand(engine, "#0.1")).stands == "verbatim"
    assert earlier.superseded == 1
