"""Given, when, then: what becomes of messages, and what a failure tells a person."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting
from eventctx.policies.policy import AskScores, Budget, PolicyState, Proposal, Visible
from eventctx.policies.proposals import keep_only
from eventctx.testing import given
from eventctx.testing.requests import refusal
from tests.policies.given import asks, model, play, system, tells, user
from tests.transcripts import DIALECTS, stories

TALK = [
    system("Be brief."),
    user("Count the files."),
    asks("a"),
    tells("a", 4_000),
    asks("b"),
    tells("b", 4_000),
    model("400."),
    user("Thank you."),
]


class Own(msgspec.Struct, frozen=True):
    """A policy made of a function."""

    propose_: Any
    name: str = "own"
    version: int = 1
    max_messages: int | None = None

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Any:
        return self.propose_(visible, budget, state)


def test_a_policy_by_name_is_asked_for_what_becomes_of_messages():
    (
        given(*TALK, budget=1_500)
        .when("truncate", keep_recent=2)
        .then(
            in_view=[0, 1, 6, 7],
            kept=[0, 1, 7],
            dropped=[2, 3, 4, 5],
            reasons={0: "system", 7: "latest_human", 3: "older"},
            tokens_at_most=1_500,
            fits=True,
        )
    )


def test_what_is_shortened_reads_as_the_model_would_read_it():
    outcome = given(*TALK, budget=2_000).when("ladder")
    short = [number for number, done in outcome.dispositions.items() if done == "shortened"]
    assert short
    shown = outcome.messages[outcome.in_view.index(short[0])]
    assert len(shown["content"]) < 4_000
    assert shown["content"].startswith("r" * 100)
    assert len(TALK[short[0]]["content"]) == 4_000


def test_pins_hint_and_answers_reach_the_policy():
    pinned = given(*TALK, budget=1_500, pins=[2]).when("truncate", keep_recent=1)
    pinned.then(kept=[2], in_view=[0, 1, 2, 3, 7], reasons={1: "task", 2: "pinned"})
    asked = (
        given(*TALK, budget=1_500, hint="files").answering(summary="400 files").when("summarize")
    )
    assert any("400 files" in str(message) for message in asked.insertions)
    asked.then(summarised=[2, 3])


def test_scores_may_be_given_by_number():
    def by_score(visible: Visible, budget: Budget, state: PolicyState) -> Proposal | AskScores:
        numbers = tuple(ref.number for ref in visible.messages)
        if "s" not in state.answers:
            return AskScores("s", numbers)
        scores = state.answers["s"].by_number
        return keep_only(visible, [number for number in numbers if scores[number] > 0.6])

    start = given(*TALK, budget=9_000).answering(scores={2: 0.9, 3: 0.9})
    start.when(Own(by_score)).then(in_view=[0, 1, 2, 3, 7])


def test_a_floor_that_does_not_fit_is_told():
    outcome = given(system("x" * 9_000), user("go"), budget=300).when("ladder")
    outcome.then(fits=False, kept=[0, 1])
    assert outcome.overflow["system messages"] > 2_000
    assert "the floor does not fit, system messages" in str(outcome)


def test_a_failure_tells_what_was_expected_and_the_whole_decision():
    outcome = given(*TALK, budget=1_500, pins=[1]).when("truncate", keep_recent=2)
    with pytest.raises(AssertionError) as caught:
        outcome.then(in_view=[0], kept=[3], dropped=[99], reasons={0: "older"}, tokens_at_most=1)
    text = str(caught.value)
    assert "expected in view [0], found [0, 1, 6, 7]" in text
    assert "expected message 3 kept, found dropped" in text
    assert "expected message 99 dropped, found no such message" in text
    assert "expected message 0 to be so for 'older', found 'system'" in text
    assert "expected at most 1 tokens" in text
    assert "policy 'truncate':" in text
    assert "#1   user " in text
    assert "kept, pinned (pinned)  Count the files." in text
    with pytest.raises(AssertionError, match="expected that it does not fit"):
        outcome.then(fits=False)


def test_a_proposal_that_breaks_a_rule_fails_with_the_rule_and_the_messages():
    def careless(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        return Proposal({ref.number: ("dropped", "older") for ref in visible.messages})

    with pytest.raises(AssertionError, match=r"policy 'own': .*'system messages stay'.* \[0\]"):
        given(*TALK, budget=1_500).when(Own(careless))


def test_a_policy_that_is_not_pure_fails():
    calls = iter([[0, 7], [0, 6, 7]])

    def moody(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        return keep_only(visible, next(calls))

    with pytest.raises(AssertionError, match="not pure"):
        given(*TALK, budget=1_500).when(Own(moody))


def test_a_policy_that_goes_on_asking_fails():
    def curious(visible: Visible, budget: Budget, state: PolicyState) -> AskScores:
        return AskScores(f"s{len(state.answers)}", (0,))

    def deaf(visible: Visible, budget: Budget, state: PolicyState) -> AskScores:
        return AskScores("s", (0,))

    with pytest.raises(AssertionError, match="asked 8 questions"):
        given(*TALK, budget=1_500).when(Own(curious))
    with pytest.raises(AssertionError, match="asks 's' a second time"):
        given(*TALK, budget=1_500).when(Own(deaf))


def test_a_policy_that_does_not_exist_is_refused():
    with pytest.raises(InvalidSetting, match="found 'nonsense'"):
        given(*TALK, budget=1_500).when("nonsense")


@settings(max_examples=25, deadline=None)
@examples(st.sampled_from(DIALECTS), st.data())
def test_it_decides_as_a_session_does_in_any_dialect(dialect, data):
    story = data.draw(stories(dialect, most=8))
    outcome = given(*story.messages, budget=1_200).when("truncate", keep_recent=4)
    assert sorted(outcome.dispositions) == list(range(len(story.messages)))
    assert len(outcome.messages) == len(outcome.in_view)
    _, requests = play(outcome.policy, story, 1_200)
    assert refusal(requests[-1]) is None
