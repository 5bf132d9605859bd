"""A demand that a later one replaces: the same words with another value, and nothing wider."""

from __future__ import annotations

import pytest

from eventctx.engine import Engine
from eventctx.log.plan import Run
from eventctx.messages.superseding import find_superseded
from eventctx.stores.memory import MemoryStore
from tests.queries.instructions.given import compact, counted, demand, model, request, rows_of, user


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
