"""Generated tasks: the agent is honest, every task can be done, and a lost fact is felt."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from eventctx.comparison.live import LiveRun
from eventctx.comparison.played import PlayedRequest
from eventctx.errors import InvalidSetting
from eventctx.messages.demands import demands_in
from eventctx.testing.tasks import (
    FAMILIES,
    HELD_OUT,
    AgentView,
    TaskContext,
    TaskTable,
    play,
    run_tasks,
)
from eventctx.testing.tasks.reading import MissingFact
from tests.how_much import some
from tests.sessions import model, user

pytestmark = pytest.mark.slow

SMALL = 3_000
Message = dict[str, Any]


class Forgetful:
    """Shows the system message and the newest messages alone."""

    def __init__(self, newest: int) -> None:
        self._run = LiveRun(None, None)
        self._newest = newest

    def add(self, message: Message) -> None:
        self._run.add(message)

    def request(self) -> PlayedRequest:
        return self._run.request()

    def rows(self) -> Sequence[Message]:
        rows = self._run.rows()
        return [*rows[:1], *rows[max(1, len(rows) - self._newest) :]]

    def last(self) -> Message:
        return self.rows()[-1]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
async def test_every_task_succeeds_with_all_in_view_and_fails_with_the_newest(family: Any) -> None:
    for seed in range(some(1, 3)):
        for characters in (None, 8_000):
            source, work = LiveRun(None, None), family.make(SMALL, seed)
            run = await play(family, work, source, most_steps=500, recall_characters=characters)
            assert run.succeeded, (family.name, seed, characters, run.sought)
            assert not [one for one in run.sought if one.where == "nowhere"]
    run = await play(family, family.make(SMALL, 1), Forgetful(3), most_steps=200)
    assert not run.succeeded


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
def test_an_agent_is_a_function_of_the_view_and_a_task_of_its_seed(family: Any) -> None:
    """It has no state: no closure over a task, and no variable of its module that changes."""
    for function in (family.act, family.notes or family.act):
        found = inspect.getclosurevars(function)
        assert not found.nonlocals
        assert not [one for one in found.globals.values() if isinstance(one, list | dict | set)]
    one, again, other = (family.make(SMALL, seed) for seed in (4, 4, 5))
    assert (one.persons, one.series) == (again.persons, again.series)
    assert one.series != other.series
    # Persons say nothing that a policy could read by its form.
    for person in [person for seed in range(10) for person in family.make(SMALL, seed).persons]:
        assert demands_in(user(person)) == ()


async def test_a_task_is_about_as_long_as_it_says() -> None:
    for family in FAMILIES:
        source = LiveRun(None, None)
        run = await play(family, family.make(16_000, 0), source, most_steps=500)
        assert 0.7 < run.requests[-1].tokens / 16_000 < 1.4, family.name


async def test_a_fact_that_fell_out_of_view_is_recalled_from_the_log() -> None:
    family = next(one for one in FAMILIES if one.name == "late_id")
    work, options = family.make(SMALL, 2), {"most_steps": 200}
    lost = await play(family, work, Forgetful(3), **options)
    assert ("an id", "nowhere") in [(one.fact, one.where) for one in lost.sought]
    found = await play(family, work, Forgetful(5), **options, recall_characters=4_000)
    assert found.succeeded
    assert ("an id", "recall") in [(one.fact, one.where) for one in found.sought]
    assert found.recalls == 1


def test_a_view_is_read_whoever_said_it_and_only_persons_words_are_a_request() -> None:
    look = {"function": {"name": "look", "arguments": '{"at": "room 13"}'}}
    rows = [user("Find it."), user("[Index] room 12 is blue"), {**model(""), "tool_calls": [look]}]
    rows.append({"role": "tool", "tool_call_id": "c", "content": "room 14 is red"})
    view = AgentView(lambda: rows, rows[-1])
    assert view.request == "Find it."
    assert view.all(r"room (\d+)") == [("12",), ("13",), ("14",)]
    assert view.calls("look", of_request=True) == [{"at": "room 13"}]
    assert view.seek("colour", "result", r"room 15 is (\w+)", "room 15") is None
    recalls = AgentView(lambda: rows, rows[-1], recalls=True)
    with pytest.raises(MissingFact):
        recalls.seek("colour", "result", "room 15 (.)", "room")


@pytest.fixture(scope="module")
def table() -> TaskTable:
    contexts = ["workset", "recency", TaskContext("forgetful", lambda _: Forgetful(3))]
    some_of = {"families": ["glossary", "late_id", "nested"], "lengths": [SMALL], "seeds": 1}
    return asyncio.run(run_tasks(contexts, shares=[1.0, 0.5], **some_of))


async def test_a_table_says_for_each_policy_and_share_how_many_succeed(table: TaskTable) -> None:
    assert [(row.policy, row.share, row.recall) for row in table.rows] == [
        (policy, share, recall)
        for share in (1.0, 0.5)
        for policy in ("workset", "recency", "forgetful")
        for recall in ((False,) if policy == "forgetful" else (False, True))
    ]
    assert table.held_out == ("nested",)
    assert set(HELD_OUT) <= {one.name for one in FAMILIES}
    row = table.row("forgetful", 0.5)
    assert row.succeeded.value == 0
    assert row.succeeded.difference is not None
    assert row.by_family == {"glossary": 0, "late_id": 0, "nested": 0}
    assert all(fact.view == 0 for fact in row.facts if fact.kind == "person")
    recalled = table.row("workset", 0.5, recall=True)
    assert (recalled.succeeded.value or 0) >= (table.row("workset", 0.5).succeeded.value or 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"families": ["gardening"]}, "families: expected some of"),
        ({"shares": [25]}, "shares: expected fractions"),
        ({"lengths": [10]}, "lengths: expected tokens from 2000"),
    ],
)
async def test_an_unknown_row_family_share_or_length_is_refused(
    table: TaskTable, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSetting, match="row: expected one of"):
        table.row("workset", 0.3)
    with pytest.raises(InvalidSetting, match=said):
        await run_tasks(["ladder"], **options)
