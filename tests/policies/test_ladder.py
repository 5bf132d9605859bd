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
    for n in range(count):
        rows += [user(f"question {n} " + "w" * words), asks(f"c{n}", size=arguments)]
        rows += [tells(f"c{n}", result), model(f"answer {n}")]
    return rows


def loop(count: int, result: int = 2_000) -> list[Row]:
    """A question and the tool rounds on it, of which the last waits for the model."""
    rounds = [(asks(f"o{n}"), tells(f"o{n}", result)) for n in range(count)]
    return [user("the question that is open"), *(row for one in rounds for row in one)]


def reasons(proposal: Proposal) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, (_, reason) in sorted(proposal.dispositions.items()):
        found.setdefault(reason, []).append(number)
    return found


def down_to(visible: Visible, share: float, **options: Any) -> Proposal:
    """The proposal for a budget whose target is this share of the view."""
    target = int(visible.tokens * share)
    return decided(Ladder(**options), visible, Budget(target * 2, target * 18 // 10, target))


def test_old_results_go_first_oldest_first_and_only_as_far_as_needed() -> None:
    visible = view(*turns(10))
    untouched = down_to(visible, 1.0)
    assert (staying(untouched), untouched.limits) == (list(range(40)), {})
    proposal = down_to(visible, 0.85)
    shortened = reasons(proposal)["old_result"]
    assert 1 <= len(shortened) <= 3
    assert shortened == [2, 6, 10][: len(shortened)]
    assert len(staying(proposal)) == 40
    # The last result that is shortened keeps what there is room for.
    *kept, last = [one.outcome or 0 for _, one in sorted(down_to(visible, 0.9).limits.items())]
    assert set(kept) <= {250} and 250 <= last < 2_000


def test_then_arguments_are_shortened_then_rounds_are_dropped_and_words_stay() -> None:
    found = reasons(down_to(view(*turns(10, result=400, arguments=3_000)), 0.75))
    assert found["old_arguments"][0] == 1
    assert "old_round" not in found
    dropped = set(reasons(down_to(view(*turns(20, result=300)), 0.5))["old_round"])
    words = set(range(0, 80, 4))
    assert {1, 2, 3} <= dropped and not words & dropped
    assert min(set(range(80)) - dropped - words) > max(dropped) - 4


def test_what_is_short_already_is_not_said_to_be_shortened() -> None:
    rows = [user("task")]
    for n in range(20):
        rows += [user(f"short {n}" if n % 2 else "long " * 500), *tool_round(n)]
    found = down_to(view(*rows), 0.3).dispositions
    shortened = [str(rows[n]["content"]) for n, (what, _) in found.items() if what == "shortened"]
    assert shortened and all(text.startswith("long") for text in shortened)


def test_what_a_person_said_is_cut_before_it_is_dropped_and_the_task_goes_last() -> None:
    found = reasons(down_to(view(*turns(20, result=10, words=2_000)), 0.4))["old_words"]
    assert found[0] == 4 and 0 not in found


def test_system_messages_pins_and_the_latest_question_are_whole_at_any_budget() -> None:
    visible = view(system("s" * 900), *turns(10, words=900), pins=(6,))
    for tokens in (1, 500, 2_000, 5_000):
        proposal = decided(Ladder(), visible, budget_of(tokens))
        assert {proposal.dispositions[number][0] for number in (0, 6, 37)} == {"kept"}
        assert not {0, 6, 37} & proposal.limits.keys()


def whole(proposal: Proposal, numbers: range) -> bool:
    return {proposal.dispositions[number][0] for number in numbers} == {"kept"}


def test_an_open_loop_is_entered_where_nothing_else_is_left_or_on_demand() -> None:
    assert whole(down_to(view(*turns(10), *loop(3)), 0.5), range(40, 47))
    visible = view(user("the task"), *loop(20))
    budget = Budget(visible.tokens, visible.tokens * 9 // 10, visible.tokens // 2)
    fitted = keeps_the_rules(Ladder(), visible, budget)
    assert fitted.tokens <= budget.target
    # The round in progress, and the last results before it, are as they were.
    assert whole(fitted.proposal, range(36, 42))
    visible = view(*turns(2), *loop(20))
    budget = Budget(visible.tokens * 2, visible.tokens * 18 // 10, visible.tokens // 2)
    assert visible.tokens <= line_to_drop_to(budget)
    assert whole(decided(Ladder(), visible, budget, DUE), range(8, 49))
    assert keeps_the_rules(Ladder(), visible, budget, MANUAL).tokens <= budget.target


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6, 0.45, 0.3])
def test_the_target_is_met_and_not_missed_by_much(share: float) -> None:
    visible = view(*turns(40, result=1_500, words=200))
    target = int(visible.tokens * share)
    fitted = keeps_the_rules(Ladder(), visible, Budget(target * 2, target * 18 // 10, target))
    assert target * 0.93 <= fitted.tokens <= target
