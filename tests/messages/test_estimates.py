"""Estimates against the prompts that providers reported, and against OpenAI's tokenizer.

The bounds are those of these files, with a margin; docs/explanation/tokens.md has the figures for
some 400 sessions, in two parts, of which the rates were fitted to one.
"""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import pairwise
from statistics import median

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts, weigh
from eventctx.messages.text_weight import MOST, MOST_NARROW, USUAL
from eventctx.messages.tokens import FAMILIES, family_of
from tests.browser.stores import recorded_folder
from tests.estimates.errors import behind_compactions, growth, next_requests
from tests.estimates.recorded import Session, files_in, name_of, sessions_of
from tests.how_much import some
from tests.messages.token_texts import CODE, LANGUAGES

FOLDER = recorded_folder()

recorded_only = pytest.mark.skipif(FOLDER is None, reason="the recorded sessions are not here")


@cache
def recorded(name: str) -> Session:
    async def read() -> list[Session]:
        assert FOLDER is not None
        files = [path for path in files_in(FOLDER) if name_of(path).startswith(name)]
        return [one for path in files async for one in sessions_of(path)]

    return [one for one in asyncio.run(read()) if len(one.steps) > 5][-1]


# Percent: (least, most) of the median error of a session's growth, before anything is reported.
GROWTH = {
    "258c7280-ae7": (-3, 5),  # Claude Code, Opus 4.6, held out
    "entire-26dcd": (0, 8),  # Claude Code, Opus 4.5
    "large-sessio": (0, 20),  # pi, Sonnet 4.5, held out
    # Codex, GPT 5.5: what its provider's searches found, an eighth of it, is in no message.
    "rollout-2026": (-13, 2),
    "deepseek-cha": (-3, 8),
    "gemini-3-pro": (-3, 8),
}


@pytest.mark.slow
@recorded_only
@pytest.mark.parametrize("name", GROWTH)
def test_what_messages_grow_by_is_known_before_anything_is_reported(name: str) -> None:
    session = recorded(name)
    least, most = GROWTH[name]
    error = 100 * median(growth(session, FAMILIES[session.family]))
    assert least <= error <= most


@recorded_only
def test_each_step_of_a_gpt_session_is_known_but_for_what_its_provider_searched() -> None:
    rates = FAMILIES["gpt"]
    grown = [
        (after.prompt - before.prompt, after.sums.tokens(rates) - before.sums.tokens(rates))
        for before, after in pairwise(recorded("rollout-2026").steps)
    ]
    known = [(real, counted) for real, counted in grown if real - counted < 2_000]
    assert len(grown) - len(known) == 3
    assert sum(c for _, c in known) == pytest.approx(sum(g for g, _ in known), rel=0.02)


@pytest.mark.slow
@recorded_only
@pytest.mark.parametrize("name", [*GROWTH, "c37652eb"])
def test_the_next_request_is_known_once_a_prompt_was_reported(name: str) -> None:
    errors = [100 * error for error in next_requests(recorded(name))]
    assert abs(median(errors)) < 0.5
    assert sum(abs(error) < 6 for error in errors) > 0.9 * len(errors)


@recorded_only
def test_the_first_request_behind_a_compaction_is_near() -> None:
    (error,) = behind_compactions(recorded("258c7280-ae7"))
    assert -0.05 < error < 0.25  # 3,387 tokens of 42,603 are in the file


# -- weights of texts ------------------------------------------------------------------------------


GPT = FAMILIES[family_of("gpt-5.2")]

TEXTS = st.text(st.sampled_from('ab zQ7\n  \t.;(){}"-é日漢こ한д🙂अ') | st.characters(codec="utf-8"))


def weight_of(text: str) -> int:
    return weigh(text.encode(), text.count("  "))[0]


@pytest.mark.parametrize("name", [*LANGUAGES, *CODE])
def test_a_text_counts_within_15_percent_in_every_language(name: str) -> None:
    exact, text = {**LANGUAGES, **CODE}[name]
    counted = GPT.tokens(read_facts({"role": "user", "content": text})) - GPT.per_message
    assert counted == pytest.approx(exact, rel=0.15)


def test_the_same_words_count_the_same_in_a_result_and_in_arguments() -> None:
    _, text = LANGUAGES["Polish"]
    result = {"role": "tool", "tool_call_id": "c", "content": text}
    call = {"type": "tool_use", "id": "c", "name": "note", "input": {"text": text}}
    said = GPT.tokens(read_facts({"role": "user", "content": text}))
    assert GPT.tokens(read_facts(result)) == said
    asked = GPT.tokens(read_facts({"role": "assistant", "content": [call]}))
    assert 10 < asked - said < 40


@given(TEXTS, TEXTS)
def test_no_part_of_a_text_weighs_more_than_its_length_and_what_is_dense_allow(
    text: str, more: str
) -> None:
    whole = text + more
    _, dense = weigh(whole.encode(), whole.count("  "))
    assert weight_of(text) <= len(text) * USUAL + dense
    assert weight_of(text) <= len(text) * (MOST_NARROW if text.isascii() else MOST)


@settings(max_examples=some(25, 100))
@given(st.lists(TEXTS.filter(lambda text: "  " not in text), max_size=5))
def test_lines_weigh_together_what_each_weighs(lines: list[str]) -> None:
    text = "".join([line + "\n" for line in lines])
    if "  " not in text:
        assert weight_of(text) == sum(map(weight_of, lines)) + len(lines) * weight_of("\n")


def test_a_long_text_weighs_in_proportion() -> None:
    for unit in ("word ", "漢字", "🙂", "7"):
        assert weight_of(unit * 40_000) == 40_000 * weight_of(unit)


def test_what_an_older_reader_stored_counts_as_it_did() -> None:
    facts = read_facts({"role": "user", "content": LANGUAGES["Russian"][1]})
    old = msgspec.structs.replace(facts, reader=8, weight=0, dense=0)
    characters, wide = facts.prose, facts.wide
    assert GPT.tokens(old) == -(-characters * 10 // 36) - (-wide * 25 // 100) + GPT.per_message


# -- sealed thinking -----------------------------------------------------------------------------


def thought(text: str, signature: str) -> Facts:
    block = {"type": "thinking", "thinking": text, "signature": signature}
    return read_facts({"role": "assistant", "content": [block, {"type": "text", "text": "ok"}]})


def test_signed_thinking_counts_by_its_text_or_else_by_its_signature_if_that_is_long() -> None:
    for signature in ("", "s" * 20, "s" * 4_000):
        assert thought("x" * 3_000, signature).thinking == 3_000
    assert thought("", "s" * 200).thinking == 0
    rates = FAMILIES["claude-4.7"]
    sealed = rates.tokens(thought("", "s" * 2_800))
    # 2,800 characters of base64 are 2,100 bytes, of which some 200 are no text.
    assert sealed - rates.tokens(thought("", "")) == pytest.approx(1_900 / 2.7, abs=2)
    assert rates.tokens(thought("", "s" * 5_600)) > 2 * sealed


@pytest.mark.parametrize(("characters", "reported"), [(1_036, 17), (1_336, 62), (1_720, 127)])
def test_encrypted_reasoning_counts_what_a_provider_reported_for_it(
    characters: int, reported: int
) -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": "g" * characters}
    counted = GPT.tokens(read_facts(item)) - GPT.per_message
    assert counted == pytest.approx(reported, abs=15)
