"""``compare``: tables on a screen, JSON, and bad input in words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventctx
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
    path = tmp_path / "work.db"
    asyncio.run(make(path, session(), session(12)))
    return path


ASK = ("compare", "work-0", "work-1", "--policies", "simple,ladder", "--budgets", "6k")


def test_a_screen_shows_what_was_held_and_its_cost_and_the_worst_loss(
    run: Any, store: Path
) -> None:
    done = run(*ASK, "--losses", 1, "--store", store)
    assert done.code == 0, done.err
    assert done.err == ""
    assert "2 sessions, 26 requests; 2 used something again that was not fresh" in done.out
    rows = [line.split()[0] for line in done.out.splitlines() if line[:1].isalpha()]
    assert [one for one in rows if one in ("whole", "simple", "ladder", "hindsight")] == [
        *("whole", "simple", "ladder", "hindsight"),
        *("whole", "simple", "ladder", "hindsight"),
        "simple",
    ]
    assert "6,000 tokens" in done.out
    assert "simple with 6,000 lost #2 of work-0: dropped" in done.out
    assert NAMES[0] in done.out


def test_why_is_asked_in_a_fork_and_says_what_the_comparison_said(run: Any, store: Path) -> None:
    policy = ("--policies", "ladder:target_usage=0.3,simple", "--losses", 2)
    done = run("compare", "work-0", "work-1", "--budgets", "6k", *policy, "--store", store)
    start = done.out.index("To ask why of #2 of work-0, do the same in a fork")
    commands = [line.strip() for line in done.out[start:].splitlines()[1:] if line.strip()]
    assert [line[line.index(f"{store} ") :].split()[1] for line in commands] == [
        *("fork", "compact", "why"),
    ]
    for line in commands:
        asked = run(*line[line.index("--store") :].split())
        assert asked.code == 0, asked.err
    assert "#2" in asked.out
    assert "an old tool round, dropped to reach the target" in done.out
    assert "an old tool round, dropped to reach the target" in asked.out
    again = run("compare", "work-0", "work-1", "--budgets", "6k", *policy, "--store", store)
    assert " fork work-0 what-if-2 --at " in again.out


def test_a_policy_that_fails_is_named_with_its_error(
    run: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy_that_fails.py").write_text(
        "def wrong(visible, budget, state):\n    raise KeyError('no such round')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ("compare", "work-0", "--policies", "custom:function=policy_that_fails:wrong")
    done = run(*asked, "--budgets", "6k", "--store", store)
    assert "decided by the ladder, as it failed (KeyError: 'no such round')" in done.out
    rows = run(*asked, "--budgets", "6k", "--json", "--store", store).document["rows"]
    assert [row["failure"] for row in rows] == [None, "KeyError: 'no such round'", None]


def test_a_path_is_a_recorded_session_and_needs_no_store(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    file.write_bytes(msgspec.json.encode(session()))
    done = run("compare", file, "--policies", "simple", "--budgets", "6k", "--losses", 1)
    assert done.code == 0, done.err
    assert "1 session, 12 requests" in done.out
    assert "lost #2 of" in done.out
    assert " why " not in done.out  # there is no store to ask


def test_the_users_own_function_is_called_by_its_path(
    run: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_summaries.py").write_text(
        "async def short(request):\n    return f'{len(request.messages)} messages went.'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ("compare", "work-1", "--policies", "summarize", "--budgets", "6k", "--store", store)
    found = run(*asked, "--summarizer", "my_summaries:short", "--json").document
    row = found["rows"][1]
    assert (row["policy"], row["fallbacks"]) == ("summarize", 0)
    assert row["compactions"] > 0
    assert "expected summarizer=" in run(*asked).err


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("work-0", "--policies", "laddr"), "expected one of", 2),
        (("work-0", "--policies", "ladder:no=1"), "expected settings among", 2),
        (("work-0", "--policies", "ladder:target_usgae=0.3"), "'target_usage'", 2),
        (("work-0", "--budgets", "5x"), "expected tokens, such as 50000 or 50k, found '5x'", 2),
        (("work-0", "--price", "3/x"), "expected prices of a million tokens", 2),
        (("work-0", "--summarizer", "nowhere:f"), "to be importable", 2),
        (("wrok-0",), "'work-0'", 2),
        ((), "SESSION…", 2),
    ],
)
def test_bad_input_is_named(
    run: Any, store: Path, arguments: tuple[str, ...], said: str, code: int
) -> None:
    done = run("compare", *arguments, "--store", store)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_a_session_without_an_answer_is_an_error_alone_and_passed_over_beside_others(
    run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "odd.db"
    asyncio.run(make(path, session(), [{"role": "user", "content": "anyone?"}]))
    alone = run("compare", "work-1", "--budgets", "6k", "--store", path)
    assert alone.code == 2
    assert "session 'work-1': expected an answer of a model to a request" in alone.err
    both = run("compare", "work-0", "work-1", "--budgets", "6k", "--store", path)
    assert both.code == 0
    assert "passed over: session 'work-1'" in both.out


TASKS = ("compare", "--tasks", "--lengths", "2k", "--seeds", "1", "--policies", "workset,recency")


@pytest.mark.slow
def test_tasks_are_played_without_a_store_and_shown_by_share_family_and_fact(run: Any) -> None:
    done = run(*TASKS, "--budgets", "100,50%")
    assert done.code == 0, done.err
    assert "16 tasks of 16 families, 2,000 tokens" in done.out
    assert "held out: correction, handoff, counters, nested" in done.out
    assert "100% of the full length" in done.out
    assert "50% of the full length" in done.out
    words = [line.split() for line in done.out.splitlines() if line[:1].isalpha()]
    assert [one[0] for one in words if one[0] in ("workset", "recency")] == [
        *("workset", "recency", "workset", "recency"),
    ]
    assert "workset, by family" in done.out
    assert any(one[0] == "person" and one[2] == "of" for one in words)


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "work", "--tasks"),
        ("compare", "--tasks", "--price", "1"),
        ("compare", "work", "--lengths", "8k"),
    ],
)
def test_sessions_and_tasks_are_not_mixed(run: Any, words: tuple[str, ...]) -> None:
    assert run(*words).code == 2


def test_prices_are_those_of_a_million_tokens(run: Any, store: Path) -> None:
    plain = run(*ASK, "--json", "--store", store).document["rows"][0]
    priced = run(*ASK, "--price", "4/0.4/5", "--json", "--store", store).document["rows"][0]
    assert priced["cost"] == pytest.approx(plain["cost"] * 4 / 1_000_000)
    shown = run(*ASK, "--price", "4/0.4/5", "--store", store).out
    assert "by the given prices" in shown


def test_a_budget_of_tasks_is_percent(run: Any) -> None:
    done = run(*TASKS, "--budgets", "16k")
    assert done.code == 2
    assert "percent of the full length, such as 25, found '16k'" in done.err
