"""Copies of a text are found by a part that is long enough, and short texts only as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.messages.overlap import LEAST_SHARED, Overlap, texts_in, words_in

WORDS = "the launch code is 0042 alpha zulu tango foxtrot and nobody may ever know it"


@given(
    text=st.text("abcdefghij ", min_size=80, max_size=300),
    start=st.integers(0, 300),
    around=st.text("XYZ", max_size=50),
)
def test_any_part_of_the_least_length_is_found_wherever_it_stands(
    text: str, start: int, around: str
) -> None:
    text = " ".join(text.split())
    start = min(start, max(0, len(text) - LEAST_SHARED))
    part = text[start : start + LEAST_SHARED]
    if len(part) < LEAST_SHARED or part != part.strip() or " " not in text:
        return
    assert Overlap([text]).shares(f"{around}{part}{around}")


@pytest.mark.parametrize(
    "other",
    [WORDS.upper(), WORDS.replace(" ", "\n  "), f"He said: {WORDS}!", WORDS[10:50]],
)
def test_case_white_space_and_what_stands_around_do_not_matter(other: str) -> None:
    assert Overlap([WORDS]).shares(other)


@pytest.mark.parametrize("other", ["", "the launch code is", "something else " * 50, WORDS[:23]])
def test_what_shares_too_little_is_no_copy(other: str) -> None:
    assert not Overlap([WORDS]).shares(other)


def test_a_short_text_is_only_found_as_a_whole() -> None:
    words = Overlap(["my pin: 4711", "src/a.py", "ok"])
    assert words.shares("My PIN: 4711")
    assert words.holds(" my pin:  4711 ")
    assert not words.shares("open src/a.py and read it")
    assert not words.holds("open src/a.py and read it")
    assert not words.shares("ok")


def test_a_repeated_text_is_one_that_holds_it_as_a_whole() -> None:
    assert Overlap([WORDS]).holds(f"She wrote: {WORDS}")
    assert not Overlap([WORDS]).holds(WORDS[:-3])


def test_a_token_is_found_as_a_whole_wherever_it_stands() -> None:
    key = "k" + "0123456789abcdef" * 3
    assert Overlap([key]).shares(f"curl -H 'X-Key: {key}' somewhere")
    assert not Overlap([key]).shares(key[:-1])


def test_what_was_said_is_looked_for_and_the_names_of_files_are_not() -> None:
    call = {"path": "/home/somebody/projects/thing/lib/a.py", "tier": "standard", "key": "x" * 40}
    blocks = [{"type": "text", "text": "hi"}, {"type": "tool_use", "name": "read", "input": call}]
    assert list(words_in({"role": "assistant", "content": blocks})) == ["hi", "x" * 40]
    assert list(words_in({"role": "user", "content": "hunter2"})) == ["hunter2"]


def test_ids_and_types_of_a_message_are_no_texts() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py", "id": 3}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "hi"}, call]}
    assert list(texts_in(message)) == ["hi", "a.py"]
