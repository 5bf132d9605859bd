"""Demands that were taken back or replaced by later ones."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import AlreadyTakenBack, InvalidSetting, NoSuchDemand
from eventctx.messages.superseding import find_superseded
from eventctx.projections.view import request_view, snapshot
from eventctx.projections.view.refs import DemandRef
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
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
