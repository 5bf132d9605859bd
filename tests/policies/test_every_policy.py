"""The rules that every policy keeps, with any settings: for odd views, any story, any provider."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting
from eventctx.policies.ladder import Ladder
from eventctx.policies.named import Custom, policy_named
from eventctx.policies.native import Native
from eventctx.policies.pipeline import Pipeline
from eventctx.policies.policy import Budget, Policy, PolicyState
from eventctx.policies.presets import Importance, Simple, Truncate
from eventctx.policies.summarize import Summarize
from eventctx.policies.token_budget import TokenBudgetPolicy
from eventctx.policies.workset import Workset
from eventctx.testing.policies import Answers
from tests.how_much import some
from tests.policies.advisers import Scripted
from tests.policies.given import (
    DUE,
    MANUAL,
    ODD_VIEWS,
    ROOMY,
    accepted,
    budget_of,
    budgets,
    examples,
    keeps_the_rules,
    seen,
    view,
)
from tests.policies.test_custom import last_three, wants_scores, without_the_oldest
from tests.transcripts import DIALECTS, Story, stories

weights = st.sampled_from([0.0, 0.3, 1.0])
ANY: dict[str, st.SearchStrategy[Policy]] = {
    "custom": st.sampled_from([Custom(last_three), Custom(without_the_oldest)]),
    "importance": st.builds(Importance, weights, weights, keep_recent=st.integers(0, 8)),
    "ladder": st.builds(Ladder, weights, st.integers(0, 8), st.sampled_from([0, 50, 250, 2_000])),
    "simple": st.builds(Simple, keep_recent=st.integers(1, 12)),
    "token-budget": st.builds(
        TokenBudgetPolicy,
        fresh_tail_count=st.integers(0, 20),
        system_reserve=st.sampled_from([0, 500, 2_000]),
        memory_fraction=st.sampled_from([0.0, 0.15, 0.6]),
        learnings=st.sampled_from([(), ("run ruff", "prefer YAML")]),
        memory=st.booleans(),
    ),
    "truncate": st.builds(
        Truncate, keep_recent=st.integers(1, 12), keep_turns=st.none() | st.integers(1, 3)
    ),
    "workset": st.builds(
        Workset, index_share=st.sampled_from([0.0, 0.25, 1.0]), index_tokens=st.integers(0, 3_000)
    ),
}
"""Policies that ask no model, with any settings."""

steps = st.lists(st.one_of(*ANY.values()), min_size=1, max_size=4)
ANY["pipeline"] = steps.map(lambda found: Pipeline(tuple(found)))
ASKING: dict[str, st.SearchStrategy[Policy]] = {
    "asking custom": st.just(Custom(wants_scores)),
    "asking importance": st.builds(
        Importance, keep_recent=st.integers(0, 8), scorer=st.just("model")
    ),
    "summarize": st.builds(
        Summarize, st.sampled_from([0.0, 0.5, 1.0]), fan_in=st.sampled_from([2, 4])
    ),
    "native": st.builds(Native, st.sampled_from([0.0, 0.25, 1.0])),
}
ASKING["asking pipeline"] = st.tuples(ANY["ladder"], ASKING["summarize"]).map(Pipeline)
TIMES = st.sampled_from([DUE, MANUAL])


def answers_for(rows: list[Any]) -> Answers:
    return Answers("all went well", 0.5, ("the port is 8080", "it deploys to Kubernetes"), rows)


@pytest.mark.parametrize("rows", ODD_VIEWS.values(), ids=ODD_VIEWS)
@pytest.mark.parametrize("name", ANY | ASKING)
@settings(examples, max_examples=some(2, 30))
@given(data=st.data(), state=TIMES)
def test_odd_views_are_no_trouble(
    name: str, rows: list[Any], data: st.DataObject, state: PolicyState
) -> None:
    policy = data.draw((ANY | ASKING)[name])
    for budget in (Budget(1, 1, 1), Budget(400, 300, 200), ROOMY):
        keeps_the_rules(policy, view(*rows), budget, state, answers_for(rows))


@pytest.mark.parametrize("name", ANY | ASKING)
@examples
@given(data=st.data(), story=stories(most=24), tokens=budgets, pin=st.integers(0, 20), state=TIMES)
def test_every_proposal_keeps_the_rules_before_and_after_it_is_fitted(
    name: str, data: st.DataObject, story: Story, tokens: int, pin: int, state: PolicyState
) -> None:
    policy, answers = data.draw((ANY | ASKING)[name]), answers_for(story.messages)
    keeps_the_rules(policy, seen(story, (pin,)), budget_of(tokens), state, answers)


LIVE = {**ANY, **{name: ASKING[name] for name in ("asking importance", "summarize")}}
"""Policies in sessions; the last two with advisers of a script."""


@pytest.mark.parametrize("name", LIVE)
@settings(examples, max_examples=some(8, 600))
@given(data=st.data(), dialect=st.sampled_from(DIALECTS), tokens=budgets)
def test_a_provider_accepts_every_view(
    name: str, data: st.DataObject, dialect: str, tokens: int
) -> None:
    advisers = {} if name in ANY else {"summarizer": Scripted(), "scorer": Scripted()}
    story = data.draw(stories(dialect, most=24))
    accepted(data.draw(LIVE[name]), story, tokens, **advisers)


NAN = float("nan")
WRONG: list[tuple[str, dict[str, Any]]] = [
    *[("custom", {"max_messages": most}) for most in (0, True, "9")],
    *[("importance", {"keep_recent": keep}) for keep in (-1, True)],
    *[("importance", {"size_weight": weight}) for weight in (-0.1, 2, "0.1", NAN)],
    ("importance", {"recency_weight": 0, "importance_weight": 0, "size_weight": 0}),
    ("importance", {"scorer": "llm"}),
    *[("ladder", {"protected_recent": share}) for share in (1.5, "all")],
    *[("ladder", wrong) for wrong in ({"protected_tool_results": -1}, {"truncate_chars": 2.5})],
    *[("summarize", wrong) for wrong in ({"summary_tokens": 0}, {"fan_in": 1})],
    ("token-budget", {"memory_fraction": 0.9, "learnings_fraction": 0.2}),
    *[("token-budget", wrong) for wrong in ({"memory": "yes"}, {"total": 30_000})],
    *[("token-budget", {"learnings": given}) for given in ("one text", [5], {"a", "b"})],
    *[("truncate", {"keep_turns": turns}) for turns in (0, 1.5)],
    *[("truncate", wrong) for wrong in ({"max_messages": 49}, {"keep": 3})],
    *[("workset", {"index_share": share}) for share in (-0.1, 1.1, NAN, "0.25")],
    *[("workset", {"index_tokens": tokens}) for tokens in (-1, True, 2.5)],
]


@pytest.mark.parametrize(("name", "wrong"), WRONG)
def test_a_setting_out_of_range_is_refused_by_name(name: str, wrong: dict[str, Any]) -> None:
    given_function = {"function": last_three} if name == "custom" else {}
    with pytest.raises(InvalidSetting, match=next(iter(wrong))) as error:
        policy_named(name, {**given_function, **wrong})
    assert "expected" in str(error.value) and "found" in str(error.value)
