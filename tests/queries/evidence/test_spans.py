"""Spans of an action, which texts count and how much; what of them a view holds; texts read."""

from __future__ import annotations

import json
from math import log2
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
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
    needs,
    normalise,
    normalise_text,
)
from eventctx.projections.evidence.judging import pointers
from eventctx.projections.evidence.texts import Carriers
from tests.how_much import some
from tests.queries.evidence.given import (
    LINE,
    asks,
    calls,
    returns,
    reused,
    says,
    spans_of,
    texts_of,
    told,
)


def test_a_run_of_words_that_stands_in_an_earlier_message_is_a_quote() -> None:
    (span,) = spans_of([asks(f"He said: {LINE}!"), says(f"I read '{LINE}' there")])
    assert (span.text, span.kind, span.carriers) == (LINE, "quote", (0,))
    run = "see it over the old rails"
    assert reused(run, "and over the old rails") == [], "24 characters at least"
    assert reused(run, f"I {run}") == [run]


@pytest.mark.parametrize("ruling", ["-" * 40, "=+" * 20, f"one {'-' * 40} two"])
def test_a_run_of_which_less_than_half_is_letters_and_digits_is_none(ruling: str) -> None:
    assert reused(ruling, ruling) == []


def test_a_ruling_of_many_tokens_takes_no_time_that_grows_with_its_square() -> None:
    ruling = "- " * 20_000
    messages = [asks(ruling), says(f"{ruling}1"), asks(f"{ruling}2"), says(f"{ruling}3")]
    before = process_time()
    assert [need.spans for need in needs(messages)] == [(), ()]
    assert process_time() - before < 5  # 0.1 s; token by token it is more than 20


def test_an_action_has_at_most_60_runs_and_a_text_counts_once() -> None:
    lines = [f"line {chr(97 + n % 26)}{chr(97 + n // 26)} of a longer text" for n in range(70)]
    source = "\n".join(lines)
    assert len(reused(source, source)) == 60
    assert len(reused(source, source, most_runs=5)) == 5
    lines = [f"line {chr(97 + n)} of a much longer text" for n in range(9)]
    source = "\n".join(lines)
    assert reused(source, ", ".join(lines), most_runs=5) == lines[:5]
    assert reused(source, ", ".join([lines[0]] * 3 + lines), most_runs=2) == lines[:2]
    name = "module.part_two"
    assert reused(f"{LINE}, {name}", f"{LINE}\n{name}\n{LINE} {name}") == [LINE, name]


PATH = "src/inner/module/file_of_it.py"  # as long as a run
NAMES = ["parse_inner", "src/app.py", "getUserById", "@acme/tool", PATH]
DIGESTS = ["3fa9c0d", "3FA9C0D", "a1" * 20]
WORDS = ["everything", "well-known-words", "a_b", "parse_one", "Capitalised"]


@pytest.mark.parametrize(
    ("text", "kind"), [*((one, "name") for one in [*NAMES, *DIGESTS]), ("8080", "number")]
)
def test_a_marked_name_a_hexadecimal_and_four_digits_count(text: str, kind: str) -> None:
    (span,) = spans_of([asks(f"look at {text}, or 123"), says(f"I open {text} but not 123")])
    assert (span.text, span.kind) == (text, kind)


@pytest.mark.parametrize("word", [*WORDS, "defaced", "3fa9c0", "3fa9c0g"])
def test_words_short_names_and_short_hexadecimals_are_none(word: str) -> None:
    assert reused(f"look at {word} first", f"I open {word}") == []


often = settings(max_examples=some(50, 400))
words = st.sampled_from(["alpha", "beta", "gamma", "delta_x", "a.b", "(gamma)", "99", "é"])
lines = st.lists(words, min_size=1, max_size=9).map(" ".join)
texts = st.lists(lines, max_size=4).map("\n".join)


@often
@given(st.lists(texts, min_size=1, max_size=4), texts)
def test_every_run_is_what_a_slow_search_finds(earlier: list[str], action: str) -> None:
    """At most four earlier messages, so all of them are tried, and words enough in every run."""
    messages = [asks(text or "nothing") for text in earlier]
    runs = [text for text in texts_of([*messages, says(action)], rarity=1.0) if len(text) >= 24]
    expected: dict[str, None] = {}
    for line in action.split("\n"):
        expected.update(dict.fromkeys(slow_runs(line, earlier)))
    assert runs == list(expected)


def in_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def slow_runs(line: str, earlier: list[str]) -> list[str]:
    """Every start and every end is tried, the longest first."""
    places = range(1, len(line))
    inner = {at for at in places if in_word(line[at - 1]) and in_word(line[at])}
    edges = [at for at in range(len(line) + 1) if at not in inner]
    found: list[str] = []
    at = 0
    for start in edges:
        if start < at or line[start : start + 1].isspace():
            continue
        for end in reversed(edges):
            run = line[start:end]
            if len(run) < 24 or run[-1].isspace():
                continue
            if any(run in text and begins_a_token(run, text) for text in earlier):
                found.append(run)
                at = end
                break
    return found


def begins_a_token(run: str, text: str) -> bool:
    """Whether the beginning of the run stands at a token's start of one of the text's lines."""
    at = text.find(run[:24])
    while at >= 0:
        if at == 0 or not (in_word(text[at - 1]) and in_word(text[at])):
            return True
        at = text.find(run[:24], at + 1)
    return False


def test_the_model_s_messages_in_a_row_are_one_action_of_the_request_before_them() -> None:
    rows = [asks("a"), says("b"), calls(), returns("c"), asks("d"), calls("c2"), returns("e", "c2")]
    assert [(need.request, need.before) for need in needs(rows)] == [(0, 1), (1, 5)]
    assert needs([]) == needs([asks("a"), asks("b")]) == ()


def test_carriers_are_all_earlier_messages_that_contain_the_text() -> None:
    rows = [asks(f"{LINE}!"), says(f"I say x{LINE}"), returns(f"_{LINE}_"), says(LINE), asks(LINE)]
    assert [(one.text, one.carriers) for one in needs(rows)[1].spans] == [(LINE, (0, 1, 2))]


def test_what_a_model_or_a_system_message_said_first_does_not_count_a_persons_words_do() -> None:
    assert spans_of([asks("go"), calls(text=LINE), returns(f"wrote {LINE}"), says(LINE)]) == []
    messages = [asks(LINE), says(LINE), asks("again"), says(LINE)]
    assert [span.carriers for span in spans_of(messages)] == [(0, 1)]
    for first in (told(f"Rule: {LINE}"), {"role": "developer", "content": LINE}):
        assert texts_of([first, asks(LINE), says(LINE)]) == []


def test_a_text_in_more_than_three_messages_and_a_tenth_of_all_does_not_count() -> None:
    assert texts_of([*[asks(LINE)] * 3, says(LINE)]) == [LINE]
    assert texts_of([*[asks(LINE)] * 4, says(LINE)]) == []
    assert texts_of([*[asks(LINE)] * 4, *[asks("else")] * 36, says(LINE)]) == [LINE]
    assert texts_of([*[asks(LINE)] * 4, *[asks("else")] * 35, says(LINE)]) == []


def test_weight_grows_with_earlier_messages_and_age_is_that_of_the_latest_carrier() -> None:
    (span,) = spans_of([asks(LINE), asks("else"), asks(LINE), says(LINE)])
    assert span.weight == log2(1 + 3 / 2)
    messages = [asks(LINE), says("1"), asks("go on"), says("2"), asks("go on"), says(LINE)]
    assert [span.age for span in spans_of(messages)] == [2]
    # What the last action itself repeated is fresh, as every policy shows it.
    for place, again, age in ((3, says(LINE), 0), (2, asks(LINE), 1), (4, asks(LINE), 0)):
        changed = [*messages[:place], again, *messages[place + 1 :]]
        assert [span.age for span in spans_of(changed)] == [age]


pieces = st.sampled_from(["ab", "cab", "b", "-", ".", " ", "é", "x_1"])
joined = st.lists(pieces, max_size=8).map("".join)


@often
@given(st.lists(joined, max_size=6), joined.filter(bool))
def test_carriers_are_exactly_the_texts_that_contain_a_text(texts: list[str], text: str) -> None:
    expected = tuple([number for number, one in enumerate(texts) if text in one])
    assert Carriers(texts).of(text) == expected


# -- what a view holds of the needed texts -------------------------------------------------------


def span(text: str, *carriers: int, **known: Any) -> ReusedSpan:
    known = {"kind": "quote", "weight": 1.0, "age": 1, **known}
    return ReusedSpan(text, carriers=carriers, **known)


def need(*spans: ReusedSpan, request: int = 0) -> Need:
    return Need(request, 100, spans)


FOX = span("the brown fox", 3, 7)


@pytest.mark.parametrize(
    ("whole", "held"),
    [
        *((one, 1) for one in ({7}, frozenset((3, 4)), range(5, 9), [7], (1, 3))),
        *((one, 0) for one in (set[int](), {4}, range(3), [8])),
    ],
)
def test_a_span_is_held_by_a_carrier_in_view_whole_or_lost(whole: set[int], held: int) -> None:
    found = judge(need(FOX, request=9), HeldTexts(whole, ("the brown cat",)))
    assert (found.request, found.held, found.needed) == (9, held, 1)
    assert found.lost == (() if held else (FOX,))


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


NAMES_ONE = ("read #7", "message 3 says", "Message 7:", "(#3, #12)")
NAMES_NONE = ("#71", "7", "message 70", "messages 7", "#7a", "#12")


@pytest.mark.parametrize("text", [*NAMES_ONE, *NAMES_NONE])
def test_a_lost_span_is_pointed_to_if_the_view_names_a_carrier(text: str) -> None:
    found = judge(need(FOX), HeldTexts((), ("else", text)))
    assert (found.held, found.pointed, found.lost) == (0, text in NAMES_ONE, (FOX,))
    assert judge(need(FOX), HeldTexts({3}, ("#3",))).pointed == 0, "what is held is not"
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


def test_escapes_are_opened_blanks_are_one_blank_and_deep_arguments_read_to_the_end() -> None:
    assert normalise_text(r"one\ntwo\t\"three\" src\/a.py") == 'one\ntwo "three" src/a.py'
    assert normalise_text("  a \t b\r\n\n   \n\tc\u00a0d  ") == "a b\nc d"
    value: Any = "bottom"
    for _ in range(5_000):
        value = [value]
    assert normalise(calls(deep=value)) == "bottom"


@given(st.text(alphabet='ab \n\t\\n"/.'))
def test_a_text_that_was_made_alike_holds_no_empty_line_and_no_two_blanks(text: str) -> None:
    made = normalise_text(text)
    assert all(line == " ".join(line.split()) and line for line in made.split("\n") if made)
