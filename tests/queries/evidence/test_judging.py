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


def span(text: str, *carriers: int, **known: Any) -> ReusedSpan:
    known = {"kind": "quote", "weight": 1.0, "age": 1, **known}
    return ReusedSpan(text, carriers=carriers, **known)


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
    fresh, old = span("the fox", 3, age=0), span("a cat", 1, age=10)
    assert judge(need(fresh), HeldTexts(())).needed == 0
    assert judge(need(fresh), HeldTexts(()), least_age=0).needed == 1
    assert judge(need(FOX, old), HeldTexts(()), least_age=10).lost == (old,)


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
def test_other_numbers_and_what_is_held_are_not_pointed_to(text: str) -> None:
    assert judge(need(FOX), HeldTexts((), (text,))).pointed == 0
    assert judge(need(FOX), HeldTexts({3}, ("#3",))).pointed == 0
    assert pointers(f"#{'9' * 5_000} and #12") == {12}, "a number without end is no message"


def test_recall_is_the_mean_over_requests_and_one_below_a_half_is_starved() -> None:
    first = judge(need(FOX, span("a cat", 9, weight=3)), HeldTexts({3}))
    second = judge(need(FOX), HeldTexts({3}))
    assert evidence([first, second]) == Evidence(0.625, 0.625, None, 0.625, 0.5, 2)
    pointed = evidence([judge(need(FOX, span("a cat", 9)), HeldTexts((), ("#3",)))])
    assert (pointed.recall, pointed.with_pointer) == (0, 0.5)
    half = judge(need(FOX, span("a cat", 9)), HeldTexts({3}))
    less = judge(need(FOX, span("a cat", 9, weight=1.1)), HeldTexts({3}))
    assert evidence([half]).starved == 0
    assert evidence([half, less]).starved == 0.5


NEVER = "Never touch main.py."
USE = "Use tabs for all files."
KIND = told("Always be kind.")
SESSION = [KIND, asks(f"Hello there. {NEVER}"), says("ok"), asks(USE), says("ok")]


def test_each_demand_of_a_person_is_found_once_with_the_messages_that_contain_it() -> None:
    found = carried_demands([*SESSION, asks(NEVER), returns(f"note: {USE}")])
    expected = [(1, NEVER, (1, 5)), (3, USE, (3, 6))]
    assert [(one.message, one.text, one.carriers) for one in found] == expected
    # What a model, a tool or a harness says is none, and a log may know better who said what.
    harness = f"<system-reminder>{NEVER}</system-reminder>"
    assert carried_demands([told(NEVER), says(NEVER), returns(NEVER), asks(harness)]) == ()
    assert [one.message for one in carried_demands(SESSION, persons={3})] == [3]


def test_a_demand_is_asked_of_every_later_request_and_held_whole_or_word_for_word() -> None:
    demands = carried_demands(SESSION)
    everything = [(before, HeldTexts(range(before))) for before in (2, 4, 5)]
    assert demand_recall(demands, everything) == DemandRecall(5, 5)
    assert demand_recall(demands, [(1, HeldTexts(()))]) == DemandRecall(0, 0)
    copy = normalise(asks(f"[…]\n> {NEVER}\n[…]"))
    assert demand_recall(demands, [(5, HeldTexts({1}))]).held == 1
    assert demand_recall(demands, [(5, HeldTexts({3}, (copy,)))]).held == 2
    assert demand_recall(demands, [(5, HeldTexts((), ("never touch the main file",)))]).held == 0
    assert demand_recall([], [(2, HeldTexts({1}))]).recall is None
    assert DemandRecall(1, 2) + DemandRecall(2, 2) == DemandRecall(3, 4)


# -- texts of messages -----------------------------------------------------------------------------

EDIT = {"old": "first line", "new": "second\nthird"}
ARGUMENTS = {"path": "src/a.py", "edits": [EDIT, "last"], "n": 3}
LEAVES = "src/a.py\nfirst line\nsecond\nthird\nlast"
FUNCTION = {"id": "c", "function": {"name": "edit", "arguments": json.dumps(ARGUMENTS)}}
OUTPUT = {"success": True, "output": "found it"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "rain?"}}
RAIN = [{"type": "text", "text": "rain"}]
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": RAIN}
THOUGHT = {"type": "thinking", "thinking": "I saw a.py"}
REASONED = {"type": "summary_text", "text": "I saw a.py"}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (calls(**ARGUMENTS), LEAVES),
        ({"role": "assistant", "content": None, "tool_calls": [FUNCTION]}, LEAVES),
        (returns("found it"), "found it"),
        ({"role": "tool", "tool_call_id": "c", "content": OUTPUT}, "found it"),
        (asks("found it"), "found it"),
        ({"role": "assistant", "content": [SEARCH, FOUND]}, "rain?\nrain"),
        ({"role": "assistant", "content": [THOUGHT]}, ""),
        ({"type": "reasoning", "summary": [REASONED]}, ""),
    ],
)
def test_strings_of_arguments_results_and_texts_are_read_and_thinking_is_not(
    message: dict[str, Any], text: str
) -> None:
    assert normalise(message) == text


def test_escapes_are_opened_blanks_are_one_blank_and_empty_lines_go() -> None:
    assert normalise_text(r"one\ntwo\t\"three\" src\/a.py") == 'one\ntwo "three" src/a.py'
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
