"""Estimates against the prompts that providers reported, on recorded sessions.

The bounds are those of these files, with a margin; docs/explanation/tokens.md has the figures for
some 400 sessions, in two parts, of which the rates were fitted to one.
"""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import pairwise
from statistics import median

import pytest

from eventctx.messages.tokens import FAMILIES
from tests.browser.stores import recorded_folder
from tests.estimates.errors import behind_compactions, growth, next_requests
from tests.estimates.recorded import Session, sessions_in

FOLDER = recorded_folder()

recorded_only = pytest.mark.skipif(FOLDER is None, reason="the recorded sessions are not here")


@cache
def recorded() -> dict[str, Session]:
    async def read() -> list[Session]:
        assert FOLDER is not None
        return [one async for one in sessions_in(FOLDER)]

    return {one.name[:12]: one for one in asyncio.run(read()) if len(one.steps) > 5}


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


@recorded_only
@pytest.mark.parametrize("name", GROWTH)
def test_what_messages_grow_by_is_known_before_anything_is_reported(name: str) -> None:
    session = recorded()[name]
    least, most = GROWTH[name]
    error = 100 * median(growth(session, FAMILIES[session.family]))
    assert least <= error <= most


@recorded_only
def test_each_step_of_a_gpt_session_is_known_but_for_what_its_provider_searched() -> None:
    steps = recorded()["rollout-2026"].steps
    rates = FAMILIES["gpt"]
    grown = [after.prompt - before.prompt for before, after in pairwise(steps)]
    counted = [
        after.sums.tokens(rates) - before.sums.tokens(rates) for before, after in pairwise(steps)
    ]
    known = [(g, c) for g, c in zip(grown, counted, strict=True) if g - c < 2_000]
    assert len(grown) - len(known) == 3
    assert sum(c for _, c in known) == pytest.approx(sum(g for g, _ in known), rel=0.02)


@recorded_only
@pytest.mark.parametrize("name", [*GROWTH, "c37652eb"])
def test_the_next_request_is_known_once_a_prompt_was_reported(name: str) -> None:
    errors = [100 * error for error in next_requests(recorded()[name])]
    assert abs(median(errors)) < 0.5
    assert sum(abs(error) < 6 for error in errors) > 0.9 * len(errors)


@recorded_only
def test_the_first_request_behind_a_compaction_is_near() -> None:
    (error,) = behind_compactions(recorded()["258c7280-ae7"])
    assert -0.05 < error < 0.25  # 3,387 tokens of 42,603 are in the file
