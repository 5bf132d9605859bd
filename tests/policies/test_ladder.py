"""The ladder: the cheapest loss first, each step only as far as needed."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.policies.fit import line_to_drop_to
from eventctx.policies.ladder import Ladder
from eventctx.policies.policy import Budget, Proposal, Visible
from tests.policies.given import (
    DUE,
    MANUAL,
    Row,
    asks,
    budget_of,
    decided,
    keeps_the_rules,
    model,
    staying,
    system,
    tells,
    user,
    view,
)
from tests.sessions import tool_round


def turns(count: int, result: int = 2_000, words: int = 100, arguments: int = 2) -> list[Row]:
    """Closed turns: a question, a tool round, an answer; four rows each."""
    rows: list[Row] = []
    for number in range(count):
        rows += [user(f"question {number} " + "w" * words)]
        rows += [asks(f"c{number}", size=arguments), tells(f"c{number}", result)]
        rows += [model(f"answer {number}")]
    return rows


def loop(count: int, result: int = 2_000) -> list[Row]:
    """A question and the tool rounds on it, of which the last waits for the model."""
    rows = [user("the question that is open")]
    for number in range(count):
        rows += [asks(f"o{number}"), tells(f"o{number}", result)]
    return rows


def reasons(proposal: Proposal) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, (_, reason) in sorted(proposal.dispositions.items()):
        found.setdefault(reason, []).append(number)
    return found


def down_to(visible: Visible, share: float, **options: Any) -> Proposal:
    """The proposal for a budget whose target is this share of the view."""
    target = int(visible.tokens * share)
    return decided(Ladder(**options), visible, Budget(target * 2, target * 18 // 10, target))


def test_a_view_at_its_target_is_left_alone() -> None:
    visible = view(*turns(5))
    proposal = down_to(visible, 1.0)
    assert staying(proposal) == list(range(20))
    assert proposal.limits == {}


def test_old_results_go_first_oldest_first_and_only_as_many_as_needed() -> None:
    visible = view(*turns(10))
    proposal = down_to(visible, 0.85)
    shortened = reasons(proposal)["old_result"]
    assert shortened == [2, 6, 10][: len(shortened)]
    assert 1 <= len(shortened) <= 3
    assert len(staying(proposal)) == 40


def test_the_last_result_that_is_shortened_keeps_what_there_is_room_for() -> None:
    visible = view(*turns(10))
    limits = down_to(visible, 0.9).limits
    kept = [limit.outcome for _, limit in sorted(limits.items())]
    assert all(outcome == 250 for outcome in kept[:-1])
    assert kept[-1] is not None
    assert 250 <= kept[-1] < 2_000


def test_arguments_are_shortened_where_results_do_not_suffice() -> None:
    visible = view(*turns(10, result=400, arguments=3_000))
    found = reasons(down_to(visible, 0.75))
    assert found["old_arguments"][0] == 1
    assert "old_round" not in found


def test_rounds_are_dropped_where_shortening_does_not_suffice_and_words_stay() -> None:
    visible = view(*turns(20, result=300))
    proposal = down_to(visible, 0.5)
    dropped = reasons(proposal)["old_round"]
    assert {1, 2, 3} <= set(dropped)
    assert not {row for row in range(80) if row % 4 == 0} & set(dropped)
    assert min(set(range(80)) - set(dropped) - set(range(0, 80, 4))) > max(dropped) - 4


def test_what_is_short_already_is_not_said_to_be_shortened() -> None:
    rows = [user("task")]
    for n in range(20):
        rows += [user(f"short {n}" if n % 2 else "long " * 500), *tool_round(n)]
    proposal = down_to(view(*rows), 0.3)
    shortened = [n for n, (what, _) in proposal.dispositions.items() if what == "shortened"]
    assert shortened
    assert all(str(rows[n]["content"]).startswith("long") for n in shortened)


def test_what_a_person_said_is_cut_before_it_is_dropped_and_the_task_goes_last() -> None:
    visible = view(*turns(20, result=10, words=2_000))
    found = reasons(down_to(visible, 0.4))
    assert found["old_words"][0] == 4
    assert 0 not in found["old_words"]


def test_system_messages_pins_and_the_latest_question_are_whole_at_any_budget() -> None:
    rows = [system("s" * 900), *turns(10, words=900)]
    visible = view(*rows, pins=(6,))
    for tokens in (1, 500, 2_000, 5_000):
        proposal = decided(Ladder(), visible, budget_of(tokens))
        for number in (0, 6, 37):
            assert proposal.dispositions[number][0] == "kept"
            assert number not in proposal.limits


def test_a_loop_that_is_open_is_left_alone_while_what_came_before_suffices() -> None:
    visible = view(*turns(10), *loop(3))
    proposal = down_to(visible, 0.5)
    assert all(proposal.dispositions[number][0] == "kept" for number in range(40, 47))


def test_a_loop_that_is_open_is_entered_where_nothing_else_is_left() -> None:
    visible = view(user("the task"), *loop(20))
    budget = Budget(visible.tokens, visible.tokens * 9 // 10, visible.tokens // 2)
    fitted = keeps_the_rules(Ladder(), visible, budget)
    assert fitted.tokens <= budget.target
    # The round in progress, and the last results before it, are as they were.
    assert all(fitted.proposal.dispositions[number][0] == "kept" for number in range(36, 42))


def test_on_demand_an_open_loop_is_entered_too() -> None:
    visible = view(*turns(2), *loop(20))
    budget = Budget(visible.tokens * 2, visible.tokens * 18 // 10, visible.tokens // 2)
    untouched = decided(Ladder(), visible, budget, DUE)
    assert visible.tokens <= line_to_drop_to(budget)
    assert all(untouched.dispositions[number][0] == "kept" for number in range(8, 49))
    asked = keeps_the_rules(Ladder(), visible, budget, MANUAL)
    assert asked.tokens <= budget.target


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6, 0.45, 0.3])
def test_the_target_is_met_and_not_missed_by_much(share: float) -> None:
    visible = view(*turns(40, result=1_500, words=200))
    target = int(visible.tokens * share)
    fitted = keeps_the_rules(Ladder(), visible, Budget(target * 2, target * 18 // 10, target))
    assert target * 0.93 <= fitted.tokens <= target
