"""Demands: which sentences of a person are told as such."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.messages.demands import CUES, MOST_DEMANDS, demands_in, demands_of
from eventctx.messages.facts_reader import read_facts


def test_a_sentence_with_a_cue_is_a_demand_as_it_stands_and_others_are_none() -> None:
    text = "The parser is broken. NEVER touch `main.py`, please! It fails since Monday."
    assert demands_of(text) == ("NEVER touch `main.py`, please!",)


def test_a_list_mark_is_no_part_of_a_demand() -> None:
    assert demands_of("- Use tabs, not spaces.\n2. Don’t rename files.") == (
        *("Use tabs, not spaces.", "Don’t rename files."),
    )


@pytest.mark.parametrize("text", ["Never push.", "must " * 61, "x = keep(use, only);"])
def test_too_few_words_too_many_and_code_are_no_demand(text: str) -> None:
    assert demands_of(text) == ()


def test_code_between_fences_is_no_demand() -> None:
    text = "Look at this.\n```\nyou must not read this\n```\nYou must read that."
    assert demands_of(text) == ("You must read that.",)


def test_what_a_harness_wrote_into_a_text_is_nobodys_demand() -> None:
    note = "<system-reminder>You must always use the todo tool.</system-reminder>"
    assert demands_of(f"Fix it, but keep the tests.\n{note}") == ("Fix it, but keep the tests.",)
    assert demands_in({"role": "user", "content": f"{note} Never touch main.py."}) == (
        "Never touch main.py.",
    )
    assert demands_in({"role": "user", "content": note}) == ()


def test_of_too_many_the_strong_ones_are_taken_in_their_order() -> None:
    lines = [f"Please look at file {n}." for n in range(20)]
    lines[15] = "Never touch file 15 again."
    found = demands_of("\n".join(lines))
    assert found == (*lines[: MOST_DEMANDS - 1], lines[15])


@given(st.lists(st.sampled_from([*CUES, "the file", "now.", "\n", "Then", "  ", "é"]), max_size=40))
def test_every_demand_stands_in_its_text_word_by_word(words: list[str]) -> None:
    text = " ".join(words)
    for demand in demands_of(text):
        assert demand in text
        assert "\n" not in demand


@pytest.mark.parametrize("cue", CUES)
@pytest.mark.parametrize(
    "text", ["then {} it now", "THEN {} IT NOW", "then é{} it now", "(then {}, it)"]
)
def test_each_cue_is_seen_in_a_message_as_in_its_sentences(cue: str, text: str) -> None:
    for written in (cue, cue.replace("'", "’")):
        whole = text.format(written.upper() if text.isupper() else written)
        assert demands_of(whole) == (whole,)
        assert read_facts({"role": "user", "content": whole}).demands == 1


def test_sentences_end_at_marks_before_capitals_at_tags_and_at_wide_marks() -> None:
    text = "Use tabs here.) Never push it.<b>Keep the old name</b>please do that。Stop at once now"
    assert demands_of(text) == (
        *("Use tabs here.", "Never push it.", "Keep the old name", "please do that"),
        "Stop at once now",
    )
