"""Spans of an action: runs that stand in an earlier message, names and numbers."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.projections.evidence import needs
from tests.queries.evidence.given import LINE, asks, returns, reused, says, spans_of, texts_of


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


def test_a_run_is_cut_back_to_a_token_s_end_and_is_none_if_that_is_too_short() -> None:
    assert reused("see it over the old railways", "see it over the old railroads") == []


def test_the_least_run_is_a_setting() -> None:
    assert reused("see it over the rails", "I see it over the rails", least_run=16) == [
        "see it over the rails"
    ]


def test_a_run_begins_at_a_tokens_start_on_both_sides() -> None:
    assert reused(f"x{LINE}", f"he {LINE}") == [LINE.removeprefix("The ")]
    assert reused(f"he {LINE}", f"x{LINE}") == [LINE.removeprefix("The ")]


def test_a_run_ends_at_the_end_of_a_token_of_the_action() -> None:
    assert reused(f"{LINE}", f"{LINE}house") == [LINE.removesuffix(" dogs")]


def test_a_run_is_as_long_as_one_message_has_it() -> None:
    start = LINE.removesuffix(" dogs")
    messages = [
        asks(start),
        returns(f"{LINE} at"),
        says("."),
        asks("go on"),
        says(f"{LINE} at home"),
    ]
    assert texts_of(messages) == [f"{LINE} at"]


def test_a_run_never_joins_two_messages() -> None:
    messages = [asks("The brown fox jumps over nine"), returns("over nine lazy dogs and a cat")]
    assert texts_of([*messages, says("The brown fox jumps over nine lazy dogs and a cat")]) == [
        "The brown fox jumps over nine"
    ]


def test_a_run_never_crosses_a_line() -> None:
    assert reused("The brown fox\njumps over nine lazy dogs", LINE) == ["jumps over nine lazy dogs"]
    assert reused(LINE, "The brown fox\njumps over nine lazy dogs") == ["jumps over nine lazy dogs"]
    assert reused(LINE, "The brown fox jumps\nover nine lazy dogs") == []
    assert reused(LINE, "The brown fox jumps over\nnine lazy dogs") == ["The brown fox jumps over"]


def test_behind_a_run_the_line_goes_on() -> None:
    other = "A second sentence of some length"
    assert reused(f"{LINE}\n{other}", f"{LINE}, {other}") == [LINE, other]


@pytest.mark.parametrize("ruling", ["-" * 40, "=+" * 20, f"one {'-' * 40} two"])
def test_a_run_of_which_less_than_half_is_letters_and_digits_is_none(ruling: str) -> None:
    assert reused(ruling, ruling) == []


def test_behind_a_ruling_a_run_is_still_found() -> None:
    assert reused(f"{'-' * 60} {LINE}", f"{'-' * 60} {LINE}")[0].endswith(LINE)


def test_a_run_of_one_word_is_no_run() -> None:
    assert reused("a" * 40, "a" * 40) == []
    assert reused(f"{'a' * 30} b", f"{'a' * 30} b") == [f"{'a' * 30} b"]


def test_words_of_other_scripts_make_runs() -> None:
    line = "Широкая электрификация южных губерний"
    assert reused(line, f"я: {line}") == [line]


def test_a_ruling_of_many_tokens_takes_no_time_that_grows_with_its_square() -> None:
    ruling = "- " * 20_000
    messages = [asks(ruling), says(f"{ruling}1"), asks(f"{ruling}2"), says(f"{ruling}3")]
    before = process_time()
    assert [need.spans for need in needs(messages)] == [(), ()]
    assert process_time() - before < 5  # 0.1 s; token by token it is more than 20


def test_a_run_is_looked_for_in_the_last_four_messages_with_its_beginning() -> None:
    start = LINE.removesuffix(" lazy dogs")
    messages = [asks(LINE), *[asks(f"{start} {n}") for n in range(4)], says(f"{LINE}.")]
    assert texts_of(messages, rarity=1.0) == [start]
    assert texts_of(messages, rarity=1.0, messages_tried=5) == [LINE]


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
    ) == [
        LINE,
        "module.part_two",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "parse_inner",
        "src/app.py",
        "os.environ",
        "http://a.io",
        "getUserById",
        "version-12",
        "@acme/tool",
    ],
)
def test_a_name_of_ten_characters_counts_if_it_has_what_words_have_not(name: str) -> None:
    (span,) = spans_of([asks(f"look at {name} first"), says(f"I open {name}")])
    assert (span.text, span.kind) == (name, "name")


@pytest.mark.parametrize(
    "name", ["everything", "well-known-words", "a_b", "parse_one", "Capitalised"]
)
def test_words_words_with_hyphens_and_short_names_are_none(name: str) -> None:
    assert reused(f"look at {name} first", f"I open {name}") == []


def test_the_least_name_is_a_setting() -> None:
    assert reused("look at main.py:12", "I open main.py:12") == ["main.py:12"]
    assert reused("look at main.py:12", "I open main.py:12", least_name=11) == []


def test_a_name_is_looked_for_only_in_the_rest_of_the_line() -> None:
    run = "the parse_inner function of it"
    assert reused(f"{run} or parse_outer", f"{run}: parse_outer") == [run, "parse_outer"]
    assert reused(f"{run} or parse_outer", f"parse_outer: {run}") == ["parse_outer", run]


@pytest.mark.parametrize("digest", ["3fa9c0d", "3FA9C0D", "a1" * 20])
def test_a_hexadecimal_from_seven_digits_is_a_name(digest: str) -> None:
    (span,) = spans_of([asks(f"commit {digest}."), says(f"git show {digest}")])
    assert (span.text, span.kind) == (digest, "name")


def test_a_hexadecimal_has_at_most_forty_digits() -> None:
    for digest, found in (("a1" * 20, ["a1" * 20]), ("a1" * 20 + "b", [])):
        assert reused(f"commit {digest}.", f"git show {digest}", least_name=50) == found


@pytest.mark.parametrize("word", ["defaced", "3fa9c0", "3fa9c0g"])
def test_words_short_hexadecimals_and_others_are_none(word: str) -> None:
    assert reused(f"commit {word}.", f"git show {word}") == []


def test_a_number_counts_from_four_digits() -> None:
    (span,) = spans_of([asks("port 8080 or 123"), says("I take 8080, not 123")])
    assert (span.text, span.kind) == ("8080", "number")


words = st.sampled_from(["alpha", "beta", "gamma", "delta_x", "a.b", "(gamma)", "99", "é"])
lines = st.lists(words, min_size=1, max_size=9).map(" ".join)
texts = st.lists(lines, max_size=4).map("\n".join)


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
