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


def test_a_run_without_a_blank_is_a_name() -> None:
    path = "src/inner/module/file_of_it.py"
    (span,) = spans_of([asks(f"see {path},"), says(f"open {path} now")])
    assert (span.text, span.kind) == (path, "name")


def test_a_run_shorter_than_24_characters_is_none() -> None:
    assert reused("see it over the old rails", "and over the old rails") == []
    assert reused("see it over the old rails", "I see it over the old rails") == [
        "see it over the old rails"
    ]


@pytest.mark.parametrize("ruling", ["-" * 40, "=+" * 20, f"one {'-' * 40} two"])
def test_a_run_of_which_less_than_half_is_letters_and_digits_is_none(ruling: str) -> None:
    assert reused(ruling, ruling) == []


def test_a_ruling_of_many_tokens_takes_no_time_that_grows_with_its_square() -> None:
    ruling = "- " * 20_000
    messages = [asks(ruling), says(f"{ruling}1"), asks(f"{ruling}2"), says(f"{ruling}3")]
    before = process_time()
    assert [need.spans for need in needs(messages)] == [(), ()]
    assert process_time() - before < 5  # 0.1 s; token by token it is more than 20


def test_an_action_has_at_most_60_runs() -> None:
    lines = [f"line {chr(97 + n % 26)}{chr(97 + n // 26)} of a longer text" for n in range(70)]
    assert len(reused("\n".join(lines), "\n".join(lines))) == 60
    assert len(reused("\n".join(lines), "\n".join(lines), most_runs=5)) == 5


def test_runs_are_limited_within_a_line_and_one_that_comes_again_is_no_further_one() -> None:
    lines = [f"line {chr(97 + n)} of a much longer text" for n in range(9)]
    source = "\n".join(lines)
    assert reused(source, ", ".join(lines), most_runs=5) == lines[:5]
    assert reused(source, ", ".join([lines[0]] * 3 + lines), most_runs=2) == lines[:2]


def test_a_text_counts_once_in_an_action() -> None:
    assert reused(
        f"{LINE}, module.part_two", f"{LINE}\nmodule.part_two\n{LINE} module.part_two"
    ) == [LINE, "module.part_two"]


@pytest.mark.parametrize("name", ["parse_inner", "src/app.py", "getUserById", "@acme/tool"])
def test_a_name_of_ten_characters_counts_if_it_has_what_words_have_not(name: str) -> None:
    (span,) = spans_of([asks(f"look at {name} first"), says(f"I open {name}")])
    assert (span.text, span.kind) == (name, "name")


@pytest.mark.parametrize(
    "name", ["everything", "well-known-words", "a_b", "parse_one", "Capitalised"]
)
def test_words_words_with_hyphens_and_short_names_are_none(name: str) -> None:
    assert reused(f"look at {name} first", f"I open {name}") == []


@pytest.mark.parametrize("digest", ["3fa9c0d", "3FA9C0D", "a1" * 20])
def test_a_hexadecimal_from_seven_digits_is_a_name(digest: str) -> None:
    (span,) = spans_of([asks(f"commit {digest}."), says(f"git show {digest}")])
    assert (span.text, span.kind) == (digest, "name")


@pytest.mark.parametrize("word", ["defaced", "3fa9c0", "3fa9c0g"])
def test_words_short_hexadecimals_and_others_are_none(word: str) -> None:
    assert reused(f"commit {word}.", f"git show {word}") == []


def test_a_number_counts_from_four_digits() -> None:
    (span,) = spans_of([asks("port 8080 or 123"), says("I take 8080, not 123")])
    assert (span.text, span.kind) == ("8080", "number")


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


def slow_runs(line: str, earlier: list[str]) -> list[str]:
    """Every start and every end is tried, the longest first."""
    word = [character.isascii() and (character.isalnum() or character == "_") for character in line]
    edges = [
        at for at in range(len(line) + 1) if not (0 < at < len(line) and word[at - 1] and word[at])
    ]
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
        joined = text[at - 1 : at + 1] if at else ""
        if not (
            len(joined) == 2 and all(c.isascii() and (c.isalnum() or c == "_") for c in joined)
        ):
            return True
        at = text.find(run[:24], at + 1)
    return False


def test_the_model_s_messages_in_a_row_are_one_action_and_the_request_is_what_precedes_them() -> (
    None
):
    messages = [
        asks("a"),
        says("b"),
        calls(),
        returns("c"),
        asks("d"),
        calls("c2"),
        returns("e", "c2"),
    ]
    assert [(need.request, need.before) for need in needs(messages)] == [(0, 1), (1, 5)]


def test_a_session_without_a_model_needs_nothing() -> None:
    assert needs([]) == ()
    assert needs([asks("a"), asks("b")]) == ()


def test_carriers_are_all_earlier_messages_that_contain_the_text() -> None:
    messages = [
        asks(f"{LINE}!"),
        says(f"I say x{LINE}"),
        returns(f"_{LINE}_"),
        says(LINE),
        asks(LINE),
    ]
    need = needs(messages)[1]
    assert [(span.text, span.carriers) for span in need.spans] == [(LINE, (0, 1, 2))]


def test_what_the_model_said_first_does_not_count_though_a_tool_repeats_it() -> None:
    messages = [asks("go"), calls(text=LINE), returns(f"wrote {LINE}"), says(LINE)]
    assert spans_of(messages) == []


def test_what_a_person_said_first_counts_though_the_model_repeats_it() -> None:
    messages = [asks(LINE), says(LINE), asks("again"), says(LINE)]
    assert [span.carriers for span in spans_of(messages)] == [(0, 1)]


def test_what_stands_in_an_earlier_system_message_does_not_count() -> None:
    assert texts_of([told(f"Rule: {LINE}"), asks(LINE), says(LINE)]) == []
    assert texts_of([{"role": "developer", "content": LINE}, asks(LINE), says(LINE)]) == []


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
    messages[2] = asks(LINE)
    assert [span.age for span in spans_of(messages)] == [1]
    messages[4] = asks(LINE)
    assert [span.age for span in spans_of(messages)] == [0]


def test_what_the_last_action_itself_repeated_is_fresh_as_every_policy_shows_it() -> None:
    messages = [asks(LINE), says("1"), asks("go on"), says(LINE), asks("go on"), says(LINE)]
    assert [span.age for span in spans_of(messages)] == [0]


pieces = st.sampled_from(["ab", "cab", "b", "-", ".", " ", "é", "x_1"])
joined = st.lists(pieces, max_size=8).map("".join)


@often
@given(st.lists(joined, max_size=6), joined.filter(bool))
def test_carriers_are_exactly_the_texts_that_contain_a_text(texts: list[str], text: str) -> None:
    expected = tuple([number for number, one in enumerate(texts) if text in one])
    assert Carriers(texts).of(text) == expected
