"""The pipeline: policies in order until the view fits, joined into one proposal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.errors import CompactionError, InvalidPlan, InvalidSetting
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.shorten import Limit, shorten
from eventctx.messages.tokens import FAMILIES
from eventctx.policies import rules
from eventctx.policies.fit import fit
from eventctx.policies.ladder import Ladder
from eventctx.policies.named import Custom, policy_named
from eventctx.policies.pipeline import Pipeline, reduce_view
from eventctx.policies.policy import (
    AskMemory,
    AskScores,
    Budget,
    Memory,
    NewInsertion,
    PolicyState,
    Proposal,
    Scores,
    Visible,
)
from eventctx.policies.presets import Simple, Truncate
from eventctx.policies.proposals import drop, keep_only, persons_words, put_back_words
from eventctx.policies.token_budget import TokenBudgetPolicy
from eventctx.policies.working_set import WorkingSet, bound_tokens
from eventctx.projections.view.layout import build
from tests.how_much import some
from tests.policies.given import (
    ROOMY,
    Row,
    asks,
    budget_of,
    budgets,
    decided,
    examples,
    keeps_the_rules,
    model,
    seen,
    staying,
    system,
    tells,
    user,
    view,
)
from tests.transcripts import Story, stories

TIGHT = Budget(2_000, 1_800, 1_000)


def rounds(count: int, size: int = 600) -> list[Row]:
    pairs = [(asks(f"c{n}"), tells(f"c{n}", size)) for n in range(count)]
    return [user("go"), *(row for pair in pairs for row in pair)]


class Noting:
    """Takes note of every view that it is shown, and lets all stay."""

    name, version, max_messages = "noting", 1, None

    def __init__(self) -> None:
        self.seen: list[Visible] = []

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        self.seen.append(visible)
        return drop(visible, [])


# -- going on, and stopping ----------------------------------------------------------------------


def test_the_next_policy_decides_on_what_is_left_until_one_gets_down_to_the_target() -> None:
    last, visible = Noting(), view(*rounds(20))
    proposal = decided(Pipeline((Truncate(keep_recent=4), last)), visible, TIGHT)
    assert proposal == decided(Truncate(keep_recent=4), visible, TIGHT)
    assert last.seen == []
    proposal = decided(Pipeline((Truncate(keep_recent=20), Ladder())), visible, TIGHT)
    assert all(proposal.dispositions[n] == ("dropped", "older") for n in range(1, 21))
    assert proposal.dispositions[22] == ("dropped", "old_round")
    assert reduce_view(visible, proposal).tokens <= TIGHT.target


def test_the_lowest_limit_on_messages_counts_and_needs_are_those_of_any_step() -> None:
    visible = view(user("go"), *map(model, "abcdefghij"))
    pipeline = Pipeline((Ladder(), Truncate(keep_recent=2, max_messages=8)))
    assert len(staying(decided(pipeline, visible, ROOMY))) == 11
    due = PolicyState("max_messages")
    assert len(staying(decided(pipeline, visible, ROOMY, due))) == 3
    assert Pipeline((Ladder(), TokenBudgetPolicy())).max_messages is None
    limited = Pipeline((Truncate(max_messages=90), Simple(max_messages=20), Ladder()))
    assert (pipeline.max_messages, limited.max_messages) == (8, 20)
    asking = Pipeline((Ladder(), policy_named("summarize")))
    needs = [one.needs_summarizer for one in (limited, asking, Pipeline((asking,)))]
    assert needs == [False, True, True]
    assert Pipeline((policy_named("importance", {"scorer": "model"}),)).needs_scorer


# -- the view in between -------------------------------------------------------------------------


def test_a_step_sees_what_is_left_with_shortened_texts_at_their_most() -> None:
    noting = Noting()
    visible = view(system("s"), *rounds(3, size=20_000), pins=(1,))
    notice = NewInsertion("notice", user("<system-reminder>" + "n" * 313))

    def shortening(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        made = changing(drop(visible, [2]), [5], Limit(outcome=100))
        return replace(made, insertions=(notice,))

    decided(Pipeline((Custom(shortening), noting)), visible, TIGHT)
    between = noting.seen[0]
    assert [ref.number for ref in between.messages] == [0, 1, 4, 5, 6, 7]
    assert [ref.number for ref in between.messages if ref.shortened] == [5]
    assert between.messages[3].facts.outcome == 180
    assert (between.pins, between.insertions) == (visible.pins, ())
    own = sum(ref.tokens for ref in between.messages)
    assert between.tokens == own + 104  # 330 characters of prose and a message around them


@examples
@given(story=stories(), tokens=budgets, pin=st.integers(0, 20))
def test_the_view_in_between_counts_its_messages(story: Story, tokens: int, pin: int) -> None:
    visible = seen(story, (pin,))
    proposal = fit(visible, decided(Ladder(), visible, budget_of(tokens)), budget_of(tokens))
    between = reduce_view(visible, proposal.proposal)
    assert between.tokens == WorkingSet(visible, proposal.proposal).total == proposal.tokens
    for ref in between.messages:
        assert ref.tokens == between.estimator.tokens(ref.facts)
    # What a layout of these would count, but for the opening, which no policy counts.
    counted = build(between.messages).tokens
    assert abs(counted - between.tokens) <= 28


sizes = st.none() | st.integers(0, 9_000)


@settings(max_examples=some(25, 100))
@given(outcome=sizes, prose=sizes, family=st.sampled_from(sorted(FAMILIES)))
def test_a_limit_never_promises_fewer_tokens_than_the_shortened_message_has(
    outcome: int | None, prose: int | None, family: str
) -> None:
    rates, limit = FAMILIES[family], Limit(outcome=outcome, prose=prose)
    # Digits at both ends, where a cut leaves them, and spaces and wide characters between.
    text = "7" * 1_500 + "a b   " * 400 + "日" * 500 + "7" * 1_500
    for message in (user(text), {"role": "tool", "tool_call_id": "c", "content": text}):
        shorter = read_facts(shorten({**message}, 3, limit))
        assert 0 < rates.tokens(shorter) <= bound_tokens(read_facts(message), limit, rates)


# -- joining -------------------------------------------------------------------------------------


def changing(made: Proposal, numbers: list[int], limit: Limit, reason: str = "custom") -> Proposal:
    """The proposal that shortens these messages too."""
    shortened: Any = dict.fromkeys(numbers, ("shortened", reason))
    limits = dict.fromkeys(numbers, limit)
    return replace(made, dispositions={**made.dispositions, **shortened}, limits=limits)


def limiting(limit: Limit, reason: str = "custom") -> Custom:
    def propose(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        results = [ref.number for ref in visible.messages if ref.facts.results]
        return changing(drop(visible, []), results, limit, reason)

    return Custom(propose)


def test_of_two_limits_the_lower_one_holds_and_what_is_hidden_stays_hidden() -> None:
    first = limiting(Limit(outcome=3_000, arguments=9), "old_result")
    second = limiting(Limit(outcome=5_000), "budget")
    steps = (Truncate(keep_recent=8), first, second, Noting(), Truncate(keep_recent=4))
    proposal = decided(Pipeline(steps), view(*rounds(8, size=9_000)), TIGHT)
    assert proposal.limits == dict.fromkeys((14, 16), Limit(3_000, 9))
    assert proposal.dispositions[14] == ("shortened", "budget")
    assert staying(proposal) == [0, 13, 14, 15, 16]


def inserting(text: str, before: int | None = None) -> Custom:
    note = NewInsertion("notice", user(f"<system-reminder>{text}"), before)
    return Custom(lambda visible, b, s: replace(drop(visible, []), insertions=(note,)))


def test_an_insertion_before_what_a_later_step_drops_goes_before_what_stays() -> None:
    pipeline = Pipeline((inserting("one", 1), Truncate(keep_recent=4)))
    (one,) = keeps_the_rules(pipeline, view(*rounds(20)), TIGHT).proposal.insertions
    assert one.before == 37


def test_a_step_that_breaks_a_rule_is_refused_by_name() -> None:
    careless = Custom(lambda visible, b, s: Proposal(dict.fromkeys(range(7), ("dropped", "x"))))
    with pytest.raises(InvalidPlan, match="latest human"):
        decided(Pipeline((careless, Ladder())), view(*rounds(3)), TIGHT)
    known: Any = {"name": "mute", "version": 1, "max_messages": None}
    mute: Any = SimpleNamespace(**known, propose=lambda v, b, s: None)
    with pytest.raises(CompactionError, match="'mute': expected a Proposal"):
        decided(Pipeline((mute,)), view(*rounds(3)), TIGHT)


# -- asking --------------------------------------------------------------------------------------


def scoring(visible: Visible, budget: Budget, state: PolicyState) -> Proposal | AskScores:
    assert state.answers.keys() <= {"s"}
    numbers = tuple([ref.number for ref in visible.messages])
    found = state.answers.get("s")
    if not isinstance(found, Scores):
        return AskScores("s", numbers)
    made = keep_only(visible, [n for n in numbers if found.by_number.get(n, 1.0) > 0.5])
    return replace(made, scores=found.by_number)


def test_a_question_is_asked_under_the_key_of_its_step() -> None:
    visible, answers = view(*rounds(40)), dict[str, Any]()
    pipeline = Pipeline((TokenBudgetPolicy(fresh_tail_count=2), Pipeline((Custom(scoring),))))
    state = PolicyState("threshold", answers=answers)
    first: Any = pipeline.propose(visible, TIGHT, state)
    assert (type(first), first.key) == (AskMemory, "0:memory")
    answers["0:memory"] = Memory(("found",))
    second: Any = pipeline.propose(visible, TIGHT, state)
    assert (type(second), second.key) == (AskScores, "1:0:s")
    assert 1 not in second.numbers
    answers["1:0:s"] = Scores(dict.fromkeys(second.numbers, 0.0))
    third = pipeline.propose(visible, TIGHT, state)
    assert isinstance(third, Proposal)
    assert staying(third) == [0]
    assert third.scores == dict.fromkeys(second.numbers, 0.0)
    assert [one.kind for one in third.insertions] == ["memory"]


# -- making one ----------------------------------------------------------------------------------


def test_steps_are_given_as_policies_as_names_or_with_settings() -> None:
    given = [Ladder(), "simple", ("truncate", {"keep_recent": 5}), ["token_budget", {}]]
    given.append(("pipeline", {"policies": ["ladder"]}))
    made = policy_named("pipeline", {"policies": given})
    steps = (Ladder(), Simple(), Truncate(keep_recent=5), TokenBudgetPolicy())
    assert made == Pipeline((*steps, Pipeline((Ladder(),))))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "expected a list of policies"),
        ("ladder", "expected a list of policies"),
        ([("ladder", {"height": 3})], "expected settings among"),
        ([("truncate", {"keep_recent": 0})], "keep_recent"),
        ([5], "expected policies, found 5"),
    ],
)
def test_what_is_no_step_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        policy_named("pipeline", {"policies": given})


# -- for any story -------------------------------------------------------------------------------


reducing = st.one_of(
    st.builds(Truncate, keep_recent=st.integers(1, 12)),
    st.builds(Simple, keep_recent=st.integers(1, 12)),
    st.builds(TokenBudgetPolicy, fresh_tail_count=st.integers(0, 9)),
    st.just(Ladder()),
    st.just(policy_named("importance")),
    st.just(Custom(lambda v, b, s: drop(v, [ref.number for ref in v.messages[:3]]))),
)


BETWEEN = [inserting("note"), limiting(Limit(500)), limiting(Limit(0))]


@examples
@given(
    story=stories(), steps=st.tuples(reducing, st.sampled_from(BETWEEN), reducing), tokens=budgets
)
def test_what_each_step_does_holds_in_the_end(story: Story, steps: Any, tokens: int) -> None:
    visible, budget = seen(story), budget_of(tokens)
    proposal = decided(Pipeline(steps), visible, budget)
    rules.check(visible, proposal)
    alone = decided(steps[0], visible, budget)
    alone = put_back_words(visible, alone, persons_words(visible, budget))
    assert set(staying(proposal)) <= set(staying(alone))
    for number, limit in alone.limits.items():
        if number in staying(proposal):
            now = proposal.limits[number]
            assert all(b <= a for a, b in zip(limit, now, strict=True) if a is not None)  # type: ignore[operator]
    assert WorkingSet(visible, proposal).total <= WorkingSet(visible, alone).total + 20
