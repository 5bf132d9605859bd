"""The driver makes the requests that a live session makes of the same messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.comparison.played import Played
from eventctx.comparison.recording import Recording
from eventctx.comparison.simulator import play
from eventctx.engine import Engine
from eventctx.policies.named import POLICIES, policy_named
from eventctx.policies.policy import (
    Answer,
    Ask,
    Budget,
    Memory,
    Policy,
    PolicyState,
    Proposal,
    Summary,
    Visible,
)
from eventctx.queries.audit import Audit
from eventctx.stores.memory import MemoryStore
from tests.how_much import beginning, some
from tests.policies.test_recorded_policies import filling
from tests.test_recorded_sessions import SESSIONS
from tests.transcripts import Message, stories

FREE = sorted(set(POLICIES) - {"custom", "native"})
"""All policies but those that are nothing without a user's function, or a provider's API."""


async def summary(request: Any) -> str:
    return f"(a summary of {len(request.numbers)} messages will stand here)"


class WithoutTheStore:
    """A policy that gets no answer which only a store has: times of messages, and memories."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name, self.version = policy.name, policy.version
        self.max_messages = policy.max_messages

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | Ask:
        answers: dict[str, Answer] = {}
        for key, one in state.answers.items():
            if isinstance(one, Summary):
                one = Summary(one.text, demands=one.demands)
            answers[key] = Memory(()) if isinstance(one, Memory) else one
        return self._policy.propose(visible, budget, replace(state, answers=answers))


def chosen(name: str) -> Policy:
    given = {"policies": ("truncate", "summarize")} if name == "pipeline" else {}
    return WithoutTheStore(policy_named(name, given))


async def live(
    messages: list[Message], policy: str, budget: int, model: str | None = None
) -> tuple[list[list[Message]], Audit]:
    """The requests of a session that really runs, one before every answer of the model."""
    engine = Engine(MemoryStore())
    settings: Any = {"on_overflow": "send_floor", "summarizer": summary}
    ctx = await engine.session("live", policy=chosen(policy), max_tokens=budget, **settings)
    requests = Recording(messages).requests
    views = []
    for number, message in enumerate(messages):
        await ctx.add_message(message)
        if number + 1 in requests:
            views.append(await ctx.get_messages_for_request(model=model))
    return views, await engine.audit("live")


async def check_equal(
    messages: list[Message], policy: str, budget: int, model: str | None = None
) -> Played:
    expected, audit = await live(messages, policy, budget, model)
    views: list[list[Message]] = []
    run = play(messages, chosen(policy), budget, model=model, watch=views.append)
    assert views == expected
    assert [one.tokens for one in run.requests] == [row.tokens for row in audit.requests]
    assert [one.floor for one in run.requests] == [row.floor_sent for row in audit.requests]
    applied = [row for row in audit.compactions if row.outcome == "applied"]
    for made, row in zip(run.compactions, applied, strict=True):
        for field in ("trigger", "tokens_before", "tokens_after"):
            assert getattr(made, field) == getattr(row, field)
        assert (made.fallback is None) == (row.fallback is None)
    return run


BUDGETS = (50_000, 16_000, 4_000)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("policy", FREE)
async def test_a_recorded_session_is_played_as_the_engine_would_have(
    policy: str, budget: int, recorded_sessions: Path
) -> None:
    paths = [recorded_sessions / name for name in SESSIONS]
    for _, session in await filling(paths, budget, FREE.index(policy), every=6):
        messages = beginning(session.messages, budget)
        await check_equal(messages, policy, budget, session.model)


async def test_words_that_are_said_again_are_played_as_the_engine_would_have() -> None:
    said = ["Mend the parser.", *["go on"] * 5]
    answers = [{"role": "assistant", "content": f"{number} " + "x" * 900} for number in range(6)]
    rows = [{"role": "user", "content": text} for text in said]
    messages = [row for pair in zip(rows, answers, strict=True) for row in pair]
    assert (await check_equal(messages, "simple", 1_000)).compactions


@settings(max_examples=some(10, 60))
@given(story=stories(), policy=st.sampled_from(FREE), budget=st.sampled_from([400, 1_500, 6_000]))
async def test_any_session_is_played_as_a_live_one(story: Any, policy: str, budget: int) -> None:
    await check_equal(story.messages, policy, budget)
