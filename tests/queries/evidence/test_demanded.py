"""A person's demands in the views of later requests."""

from __future__ import annotations

from eventctx.projections.evidence import (
    DemandRecall,
    HeldTexts,
    carried_demands,
    demand_recall,
    normalise,
)
from tests.queries.evidence.given import asks, returns, says, told

NEVER = "Never touch main.py."
USE = "Use tabs for all files."
SESSION = [
    told("Always be kind."),
    asks(f"Hello there. {NEVER}"),
    says("ok"),
    asks(USE),
    says("ok"),
]


def test_each_demand_of_a_person_is_found_once_with_the_messages_that_contain_it() -> None:
    found = carried_demands([*SESSION, asks(NEVER), returns(f"note: {USE}")])
    assert [(one.message, one.text, one.carriers) for one in found] == [
        (1, NEVER, (1, 5)),
        (3, USE, (3, 6)),
    ]


def test_what_a_model_a_tool_or_a_harness_says_is_no_demand() -> None:
    harness = f"<system-reminder>{NEVER}</system-reminder>"
    assert carried_demands([told(NEVER), says(NEVER), returns(NEVER), asks(harness)]) == ()


def test_a_log_that_knows_better_says_which_messages_a_person_wrote() -> None:
    (found,) = carried_demands(SESSION, persons={3})
    assert found.message == 3


def test_a_demand_is_asked_of_every_later_request() -> None:
    demands = carried_demands(SESSION)
    everything = [(before, HeldTexts(range(before))) for before in (2, 4, 5)]
    assert demand_recall(demands, everything) == DemandRecall(5, 5)
    assert demand_recall(demands, [(1, HeldTexts(()))]) == DemandRecall(0, 0)


def test_a_demand_is_held_by_a_message_in_view_whole_or_word_for_word_by_another_text() -> None:
    demands = carried_demands(SESSION)
    copy = normalise(asks(f"[…]\n> {NEVER}\n[…]"))
    assert demand_recall(demands, [(5, HeldTexts({1}))]).held == 1
    assert demand_recall(demands, [(5, HeldTexts({3}, (copy,)))]).held == 2
    assert demand_recall(demands, [(5, HeldTexts((), ("never touch the main file",)))]).held == 0


def test_blanks_do_not_matter_and_words_do() -> None:
    demands = carried_demands([asks("Never   touch\tmain.py."), says("ok")])
    assert demand_recall(demands, [(1, HeldTexts((), (normalise(asks(NEVER)),)))]).held == 1


def test_recall_is_the_share_of_all_pairs() -> None:
    demands = carried_demands(SESSION)
    found = demand_recall(demands, [(2, HeldTexts({1})), (4, HeldTexts({3}))])
    assert (found, found.recall) == (DemandRecall(2, 3), 2 / 3)


def test_of_no_demand_there_is_no_recall_and_sessions_add_up() -> None:
    assert demand_recall([], [(2, HeldTexts({1}))]).recall is None
    assert DemandRecall(1, 2) + DemandRecall(2, 2) == DemandRecall(3, 4)
