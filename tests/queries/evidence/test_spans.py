"""Spans of an action: which texts count, for which request, how old they are, and their weight."""

from __future__ import annotations

from math import log2
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.projections.evidence import needs
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


def test_the_weight_grows_with_the_earlier_messages_to_a_carrier() -> None:
    (span,) = spans_of([asks(LINE), asks("else"), asks(LINE), says(LINE)])
    assert span.weight == log2(1 + 3 / 2)


def test_the_age_is_the_number_of_requests_that_showed_the_latest_carrier_before() -> None:
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
