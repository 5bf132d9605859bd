"""The first request after a compaction of another program is expected near its reported prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.formats.claude.conversation import RESENT
from eventctx.projections.view import request_view
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.importers.given import ClaudeCode, call, events, load, text

BESIDE = 26_000
"""Tokens of system prompt and tools, in no line of the file."""


def working(log: ClaudeCode, name: str, rounds: int, prompt: int, each: int) -> int:
    """Rounds of a tool whose prompts grow by ``each``; returns the last prompt."""
    for number in range(rounds):
        prompt += each
        key = f"{name}{number}"
        usage = {"input_tokens": prompt, "output_tokens": 9}
        log.answer(f"m{key}", call(key), model="claude-opus-4-5", usage=usage)
        log.result(key, "some words of a result " * 200)
    return prompt


def compacted(log: ClaudeCode) -> None:
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 150_000})
    log.user("This session is being continued from a previous conversation", isCompactSummary=True)


async def expected(tmp_path: Path, log: ClaudeCode) -> list[Any]:
    path = tmp_path / "file.jsonl"
    path.write_bytes(log.data())
    store = MemoryStore()
    summary = await load(store, path, complete=True)
    assert summary.session is not None
    state = await fold(store, summary.session, request_view)
    assert state.calibration.compacted > 0
    return await events(store, summary.session, "context:request_prepared")


# About 1,600 tokens a round are counted. The first prompt holds one round already.
@pytest.mark.parametrize("each", [900, 1_600, 3_000])
async def test_however_wrong_the_growth_was_what_was_sent_with_it_is_known(
    tmp_path: Path, each: int
) -> None:
    log = ClaudeCode().user("go")
    working(log, "a", 40, BESIDE, each)
    compacted(log)
    working(log, "b", 1, BESIDE, each)
    requests = await expected(tmp_path, log)
    behind = next(one for one in requests if "compaction" in one.breaks)
    assert behind.reconstructed
    assert behind.tokens == pytest.approx(BESIDE + each + RESENT, rel=0.03)


async def test_the_second_compaction_is_judged_by_the_first(tmp_path: Path) -> None:
    log = ClaudeCode().user("go")
    working(log, "a", 40, BESIDE, 1_600)
    compacted(log)
    working(log, "b", 40, 50_000, 1_600)
    compacted(log)
    working(log, "c", 1, 50_000, 1_600)
    requests = await expected(tmp_path, log)
    *_, behind = [one for one in requests if "compaction" in one.breaks]
    assert behind.tokens == pytest.approx(51_600, rel=0.05)


async def test_what_is_sent_again_counts_until_a_prompt_was_reported(tmp_path: Path) -> None:
    log = ClaudeCode().user("go")
    working(log, "a", 10, BESIDE, 1_600)
    compacted(log)
    log.answer("m1", text("one"), model="claude-opus-4-5", usage=None)
    log.user("and?").answer("m2", text("two"), model="claude-opus-4-5", usage=None)
    requests = await expected(tmp_path, log)
    first, second = requests[-2:]
    assert second.reserve == first.reserve > BESIDE + RESENT * 0.9
