"""``compare``: tables on a screen, JSON, and bad input in words."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

import eventctx
from tests.cli.conftest import Run
from tests.comparison.given import NAMES, session
from tests.transcripts import Message


async def make(path: Path, *sessions: list[Message]) -> None:
    async with eventctx.open(path) as engine:
        for place, messages in enumerate(sessions):
            ctx = await engine.session(f"work-{place}", auto_compact=False)
            for message in messages:
                await ctx.add_message(message)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    asyncio.run(make(tmp_path / "s.db", session(), session(12)))
    return tmp_path / "s.db"


ASK = ("compare", "work-0", "work-1", "--policies", "simple,ladder", "--budgets", "6k")


def first_words(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines() if line[:1].isalpha()]


def test_a_screen_shows_what_was_held_its_cost_and_the_worst_loss(run: Run, store: Path) -> None:
    out = run(*ASK, "--losses", 1).ok(
        "2 sessions, 26 requests; 2 used something again that was not fresh",
        *("6,000 tokens", "simple with 6,000 lost #2 of work-0: dropped", NAMES[0]),
    )
    policies = ["whole", "simple", "ladder", "hindsight"]
    shown = [one for one in first_words(out) if one in policies]
    assert shown == [*policies, *policies, "simple"]
    plain = run(*ASK, "--json").document["rows"][0]
    priced = run(*ASK, "--price", "4/0.4/5", "--json").document["rows"][0]
    assert priced["cost"] == pytest.approx(plain["cost"] * 4 / 1_000_000)
    run(*ASK, "--price", "4/0.4/5").ok("by the given prices")


def test_why_is_asked_in_a_fork_and_says_what_the_comparison_said(run: Run, store: Path) -> None:
    policy = ("--policies", "ladder:target_usage=0.3,simple", "--losses", 2)
    comparison = ("compare", "work-0", "work-1", "--budgets", "6k", *policy, "--store", store)
    out = run(*comparison).out
    start = out.index("To ask why of #2 of work-0, do the same in a fork")
    commands = [line.strip() for line in out[start:].splitlines()[1:] if line.strip()]
    named = [line[line.index(f"{store} ") :].split()[1] for line in commands]
    assert named == ["fork", "compact", "why"]
    for line in commands:
        asked = run(*line[line.index("--store") :].split())
        assert asked.code == 0, asked.err
    assert "#2" in asked.out
    assert "an old tool round, dropped to reach the target" in out
    assert "an old tool round, dropped to reach the target" in asked.out
    assert " fork work-0 what-if-2 --at " in run(*comparison).out


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's own, with a policy that fails and a summarizer."""
    (tmp_path / "functions_of_mine.py").write_text(
        "def wrong(visible, budget, state):\n    raise KeyError('no such round')\n"
        "async def short(request):\n    return f'{len(request.messages)} messages went.'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_own_functions_are_called_or_named_at_fault(run: Run, store: Path, functions: None) -> None:
    custom = ("compare", "work-0", "--policies", "custom:function=functions_of_mine:wrong")
    shown = run(*custom, "--budgets", "6k").out
    assert "decided by the ladder, as it failed (KeyError: 'no such round')" in shown
    rows = run(*custom, "--budgets", "6k", "--json").document["rows"]
    assert [row["failure"] for row in rows] == [None, "KeyError: 'no such round'", None]
    summarize = ("compare", "work-1", "--policies", "summarize", "--budgets", "6k")
    found = run(*summarize, "--summarizer", "functions_of_mine:short", "--json").document
    row = found["rows"][1]
    assert (row["policy"], row["fallbacks"], row["compactions"] > 0) == ("summarize", 0, True)
    assert "expected summarizer=" in run(*summarize).err


def test_a_path_is_a_recorded_session_and_needs_no_store(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    file.write_bytes(msgspec.json.encode(session()))
    done = run("compare", file, "--policies", "simple", "--budgets", "6k", "--losses", 1)
    out = done.ok("1 session, 12 requests", "lost #2 of")
    assert " why " not in out  # there is no store to ask


def test_a_session_without_an_answer_is_an_error_only_alone(run: Run, tmp_path: Path) -> None:
    asyncio.run(make(tmp_path / "s.db", session(), [{"role": "user", "content": "anyone?"}]))
    missing = "session 'work-1': expected an answer of a model to a request"
    run("compare", "work-1", "--budgets", "6k").fails(missing)
    both = run("compare", "work-0", "work-1", "--budgets", "6k")
    assert (both.code, "passed over: session 'work-1'" in both.out) == (0, True)


TASKS = ("compare", "--tasks", "--lengths", "2k", "--seeds", "1", "--policies", "workset,recency")


@pytest.mark.slow
def test_tasks_are_played_without_a_store_and_shown_by_share_family_and_fact(run: Run) -> None:
    out = run(*TASKS, "--budgets", "100,50%").ok(
        "16 tasks of 16 families, 2,000 tokens",
        "held out: correction, handoff, counters, nested",
        *("100% of the full length", "50% of the full length", "workset, by family"),
    )
    shown = [one for one in first_words(out) if one in ("workset", "recency")]
    assert shown == ["workset", "recency"] * 2
    assert re.search(r"^person +\S+ +of ", out, re.MULTILINE)
