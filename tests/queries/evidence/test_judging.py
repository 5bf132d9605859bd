"""What of the needed texts a view holds, and the texts of messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.projections.evidence import (
    DemandRecall,
    Evidence,
    HeldTexts,
    Need,
    ReusedSpan,
    carried_demands,
    demand_recall,
    evidence,
    judge,
    normalise,
    normalise_text,
)
from eventctx.projections.evidence.judging import pointers
from tests.queries.evidence.given import asks, calls, returns, says, told


def span(
    text: str, *carriers: int, kind: str = "quote", weight: float = 1.0, age: int = 1
) -> ReusedSpan:
    return ReusedSpan(text, kind, weight, age, carriers)  # type: ignore[arg-type]


def need(*spans: ReusedSpan, request: int = 0) -> Need:
    return Need(request, 100, spans)


FOX = span("the brown fox", 3, 7)


@pytest.mark.parametrize("whole", [{7}, frozenset((3, 4)), range(5, 9), [7], (1, 3)])
def test_a_carrier_in_view_whole_holds_a_span(whole: set[int]) -> None:
    assert judge(need(FOX), HeldTexts(whole)).held == 1


@pytest.mark.parametrize("whole", [set(), {4}, range(3), [8]])
def test_without_a_carrier_and_without_its_text_a_span_is_lost(whole: set[int]) -> None:
    found = judge(need(FOX, request=9), HeldTexts(whole, ("the brown cat",)))
    assert (found.request, found.held, found.needed, found.lost) == (9, 0, 1, (FOX,))


def test_fresh_spans_are_not_judged() -> None:
    assert judge(need(span("the fox", 3, age=0)), HeldTexts(())).needed == 0
    assert judge(need(span("the fox", 3, age=0)), HeldTexts(()), least_age=0).needed == 1
    assert judge(need(FOX, span("a cat", 1, age=10)), HeldTexts(()), least_age=10).lost == (
        span("a cat", 1, age=10),
    )


def test_weights_are_summed_for_quotes_apart_from_names_and_numbers() -> None:
    spans = (
        span("a quote", 1, weight=8),
        span("lost quote", 9, weight=4),
        span("a_name", 1, kind="name", weight=2),
        span("4711", 1, kind="number", weight=1),
        span("lost_name", 9, kind="name", weight=16),
    )
    found = judge(need(*spans), HeldTexts({1}))
    assert (found.needed, found.held) == (31, 11)
    assert (found.quotes_needed, found.quotes_held) == (12, 8)
    assert (found.names_needed, found.names_held) == (19, 3)


@pytest.mark.parametrize("text", ["read #7", "message 3 says", "Message 7:", "(#3, #12)"])
def test_a_lost_span_is_pointed_to_if_the_view_names_a_carrier(text: str) -> None:
    found = judge(need(FOX), HeldTexts((), ("else", text)))
    assert (found.held, found.pointed, found.lost) == (0, 1, (FOX,))


@pytest.mark.parametrize("text", ["#71", "7", "message 70", "messages 7", "#7a", "#12"])
def test_other_numbers_point_to_nothing(text: str) -> None:
    assert judge(need(FOX), HeldTexts((), (text,))).pointed == 0


def test_what_is_held_is_not_pointed_to_as_well() -> None:
    assert judge(need(FOX), HeldTexts({3}, ("#3",))).pointed == 0


def test_a_number_without_end_is_no_message() -> None:
    assert pointers(f"#{'9' * 5_000} and #12") == {12}


def test_recall_is_the_mean_over_requests_of_the_share_of_the_weight() -> None:
    first = judge(need(FOX, span("a cat", 9, weight=3)), HeldTexts({3}))
    second = judge(need(FOX), HeldTexts({3}))
    assert evidence([first, second]) == Evidence(0.625, 0.625, None, 0.625, 0.5, 2)


def test_what_is_pointed_to_counts_with_pointer() -> None:
    found = evidence([judge(need(FOX, span("a cat", 9)), HeldTexts((), ("#3",)))])
    assert (found.recall, found.with_pointer) == (0, 0.5)


def test_a_request_below_one_half_is_starved_and_one_at_half_is_not() -> None:
    half = judge(need(FOX, span("a cat", 9)), HeldTexts({3}))
    less = judge(need(FOX, span("a cat", 9, weight=1.1)), HeldTexts({3}))
    assert evidence([half]).starved == 0
    assert evidence([half, less]).starved == 0.5


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


def test_of_no_demand_there_is_no_recall_and_sessions_add_up() -> None:
    assert demand_recall([], [(2, HeldTexts({1}))]).recall is None
    assert DemandRecall(1, 2) + DemandRecall(2, 2) == DemandRecall(3, 4)


# -- texts of messages -----------------------------------------------------------------------------

EDIT = {"old": "first line", "new": "second\nthird"}
ARGUMENTS = {"path": "src/a.py", "edits": [EDIT, "last"], "n": 3}
LEAVES = "src/a.py\nfirst line\nsecond\nthird\nlast"


@pytest.mark.parametrize(
    "message",
    [
        calls(**ARGUMENTS),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "function": {"name": "edit", "arguments": json.dumps(ARGUMENTS)}}
            ],
        },
    ],
    ids=["anthropic", "chat"],
)
def test_of_a_calls_arguments_the_strings_are_read_without_keys_and_numbers(
    message: dict[str, Any],
) -> None:
    assert normalise(message) == LEAVES


@pytest.mark.parametrize(
    "message",
    [
        returns("found it"),
        {"role": "tool", "tool_call_id": "c", "content": {"success": True, "output": "found it"}},
        asks("found it"),
    ],
    ids=["anthropic", "amplifier", "person"],
)
def test_a_result_and_a_text_are_read_as_they_are(message: dict[str, Any]) -> None:
    assert normalise(message) == "found it"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "I saw a.py"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I saw a.py"}]},
    ],
    ids=["anthropic", "responses"],
)
def test_thinking_is_not_read(message: dict[str, Any]) -> None:
    assert normalise(message) == ""


def test_escapes_are_opened() -> None:
    assert normalise_text(r"one\ntwo\t\"three\" src\/a.py") == 'one\ntwo "three" src/a.py'


def test_blanks_are_one_blank_lines_are_stripped_and_empty_lines_go() -> None:
    assert normalise_text("  a \t b\r\n\n   \n\tc\u00a0d  ") == "a b\nc d"


def test_deep_arguments_are_read_to_the_end() -> None:
    value: Any = "bottom"
    for _ in range(5_000):
        value = [value]
    assert normalise(calls(deep=value)) == "bottom"


@given(st.text(alphabet='ab \n\t\\n"/.'))
def test_a_text_that_was_made_alike_holds_no_empty_line_and_no_two_blanks(text: str) -> None:
    made = normalise_text(text)
    assert all(line == " ".join(line.split()) and line for line in made.split("\n") if made)


def test_a_search_of_the_provider_is_read_with_what_it_found() -> None:
    query = {
        "type": "server_tool_use",
        "id": "s",
        "name": "web_search",
        "input": {"query": "the weather"},
    }
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"type": "text", "text": "rain"}],
    }
    assert normalise({"role": "assistant", "content": [query, found]}) == "the weather\nrain"
