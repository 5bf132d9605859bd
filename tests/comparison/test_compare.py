"""Policies compared over sessions, which are played as the engine would have, and their figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.comparison.compare import Comparison
from eventctx.comparison.contenders import budgets_of, chance, contenders, hindsight, recency
from eventctx.comparison.defaults import Prices
from eventctx.comparison.figures import RunFigures, by_rule, compaction_costs, figures, needed_again
from eventctx.comparison.played import NumberSet, Played
from eventctx.comparison.recording import Recording
from eventctx.comparison.simulator import play
from eventctx.comparison.statistics import (
    Curve,
    at_cost,
    at_equal_cost,
    draws,
    interval,
    interval_of_difference,
    pooled,
)
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
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
from eventctx.policies.proposals import drop, keep_only
from eventctx.queries.audit import Audit
from eventctx.stores.memory import MemoryStore
from eventctx.testing import compare_policies
from tests.comparison.given import NAMES, proposing, session, user
from tests.how_much import beginning, some
from tests.policies.advisers import Scripted
from tests.policies.test_recorded_policies import filling, one_process_reads
from tests.test_recorded_sessions import SESSIONS
from tests.transcripts import Message, stories

Rows = list[dict[str, Any]]


async def store_of(*sessions: Rows, budget: int = 1_000_000) -> Engine:
    engine = Engine(MemoryStore())
    for place, messages in enumerate(sessions):
        await (await engine.session(f"s{place}", max_tokens=budget)).add_messages(messages)
    return engine


async def compared(sessions: list[Rows], *policies: Any, **more: Any) -> Comparison:
    engine = await store_of(*sessions)
    names = [f"s{place}" for place in range(len(sessions))]
    return await engine.compare(names, policies=policies, **{"budgets": [6_000], **more})


async def test_rows_are_without_compaction_then_all_policies_and_hindsight_by_budget() -> None:
    found = await compared([session(), session(14)], "simple", "random", budgets=["6k", 9_000])
    assert [(row.policy, row.budget) for row in found.rows] == [
        ("whole", None),
        *[(name, 9_000) for name in ("simple", "random", "hindsight")],
        *[(name, 6_000) for name in ("simple", "random", "hindsight")],
    ]
    whole, best = found.row("whole"), found.row("hindsight", 6_000)
    simple = found.row("simple", 6_000)
    assert (whole.evidence.value, whole.demands, whole.compactions) == (1, 1, 0)
    assert (best.evidence.value, simple.evidence.value) == (1, 0)
    assert simple.tokens < whole.tokens
    assert [one.session for one in found.sessions] == ["s0", "s1"]


async def test_a_difference_is_to_the_first_policy_with_the_same_budget() -> None:
    sessions = [session(rounds) for rounds in range(10, 16)]
    found = await compared(sessions, "simple", "hindsight", "ladder")
    names = ("simple", "hindsight", "ladder")
    simple, best, ladder = [found.row(name).evidence for name in names]
    assert (simple.difference, best.difference) == (None, None)
    assert ladder.difference and ladder.difference.value == ladder.value


def keeping(first: int) -> Any:
    """Keeps so many messages of the start, of which the first round is needed at the end."""

    def propose(visible: Visible) -> Proposal:
        numbers = [ref.number for ref in visible.messages]
        return keep_only(visible, {*numbers[:first], *numbers[-4:]})

    return proposing("keeper", propose)


@pytest.mark.parametrize(("sessions", "noise"), [(2, True), (5, True), (6, False)])
async def test_a_few_sessions_may_point_the_same_way_by_chance(sessions: int, noise: bool) -> None:
    found = await compared([session()] * sessions, "recency", keeping(3))
    difference = found.row("keeper").evidence.difference
    assert difference and difference.interval and not difference.interval.holds_zero
    assert difference.within_noise is noise


async def test_losses_say_what_to_ask_next() -> None:
    (loss,) = (await compared([session()], "simple", losses=1)).losses
    assert (loss.policy, loss.budget, loss.session, loss.message) == ("simple", 6_000, "s0", 2)


async def test_a_session_is_used_up_to_its_first_compaction() -> None:
    engine = await store_of(session(), budget=6_000)
    ctx = await engine.session("s0", max_tokens=6_000)
    await ctx.get_messages_for_request()
    await ctx.compact()
    count = len(await ctx.get_messages())
    await ctx.add_messages(session(4))
    found = await engine.compare(["s0"], policies=["ladder"], budgets=[6_000])
    (one,) = found.sessions
    assert (one.messages, one.left_out) == (count, len(session(4)))


async def test_a_session_without_an_answer_is_passed_over_and_an_error_if_alone() -> None:
    engine = await store_of(session(), [user("anyone?")])
    found = await engine.compare(["s0", "s1"], budgets=["6k"])
    assert [one.session for one in found.passed_over] == ["s1"]
    with pytest.raises(InvalidSetting, match="'s1': expected an answer of a model"):
        await engine.compare(["s1"], budgets=["6k"])
    with pytest.raises(StreamNotFound):
        await engine.compare(["s2"])
    with pytest.raises(InvalidSetting, match="expected at least one, found none"):
        await engine.compare([])


def test_a_policy_may_have_settings_and_every_one_is_compared_that_needs_no_function() -> None:
    (one,) = contenders(["simple:keep_recent=3:target_usage=0.3"])
    assert (one.label, one.target) == ("simple:keep_recent=3:target_usage=0.3", 0.3)
    assert one.make(()) == policy_named("simple", {"keep_recent": 3})
    (custom,) = contenders(["custom:function=eventctx.policies.proposals:keep_only"])
    assert custom.make(()) is not None
    labels = {one.label for one in contenders(None)}
    assert labels >= {"ladder", "simple", "truncate", "importance", "token-budget"}
    assert not {"custom", "summarize"} & labels


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        (["laddr"], "expected one of .*'ladder'.*found 'laddr'"),
        (["ladder", "ladder"], "expected each once, found ladder twice"),
        (["ladder:nothing=1"], "expected settings among .*found"),
        (["random:seed=1"], "expected no settings"),
        (["ladder:target_usage=high"], "to be numbers, found 'high'"),
        (["ladder:target_usage=0.95"], "target_usage < compact_threshold"),
        (["summarize"], "expected summarizer=, a function"),
        (["custom"], "expected a function"),
        ([object()], "objects with name, version"),
        ([], "expected at least one, found none"),
        (["whole", "hindsight"], "expected at least one besides whole and hindsight"),
        ("ladder", "expected a list of policies"),
    ],
)
def test_a_policy_that_cannot_be_played_is_refused_in_words(policies: Any, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        contenders(policies)


def test_budgets_are_tokens_and_may_be_short() -> None:
    assert budgets_of(["16k", "0.5M", 4_000, "100_000"]) == [500_000, 100_000, 16_000, 4_000]
    for wrong in ("", "k", "5x", "-3", "0", 0, 1.5, True):
        with pytest.raises(InvalidSetting, match="budget: expected tokens, such as 50000 or 50k"):
            budgets_of([wrong])  # type: ignore[list-item]


async def test_a_policy_that_asks_gets_the_users_function_and_the_ladder_where_it_fails() -> None:
    scripted, failing = Scripted(), Scripted(*[RuntimeError("down")] * 99)
    found, ladder = [
        await compare_policies(
            [session(14)], ["summarize", "ladder"], budgets=[6_000], summarizer=one
        )
        for one in (scripted, failing)
    ]
    first, row = scripted.requests[0], found.row("summarize")
    assert first.messages[0] == session(14)[first.numbers[0]]
    assert (row.fallbacks, row.compactions > 0) == (0, True)
    row = ladder.row("summarize")
    assert row.fallbacks == row.compactions > 0
    assert row.tokens == ladder.row("ladder").tokens


async def test_a_users_own_policy_is_measured_over_transcripts() -> None:
    sessions = [session(), session(14)]
    found = await compare_policies(sessions, ["ladder", keeping(0)], budgets=[6_000])
    own = found.row("keeper")
    assert own.evidence.value == 0
    assert own.evidence.difference is not None
    assert own.tokens < found.row("ladder").tokens
    with pytest.raises(InvalidSetting, match=r"found keeper at 1$"):
        found.row("keeper", 1)
    with pytest.raises(InvalidSetting, match="transcript 2: expected an answer"):
        await compare_policies([session(), [user("?")]], ["ladder"])


def run(policy: Any, budget: int | None, messages: Any = None) -> tuple[Played, RunFigures, Any]:
    """A session that was played, its figures, and what was lost of what it needed."""
    recording = Recording(messages or session(), name="s")
    played = play(recording, policy_named(policy) if isinstance(policy, str) else policy, budget)
    lost = needed_again("policy", budget or 0, recording, played)
    return played, figures(played, recording.needs, recording.demands), lost


def test_without_compaction_nothing_is_lost_and_every_request_begins_with_the_one_before() -> None:
    played, found, _ = run("ladder", None)
    assert (found.recall, found.demand_recall, found.starving) == (1, 1, 0)
    for before, after in pairwise(played.requests):
        assert after.prefix == before.tokens
    assert found.tokens - found.cached == played.requests[-1].tokens
    assert (found.compactions, found.floors, found.fallbacks) == (0, 0, 0)
    answers = [*range(1, 22, 2), 23]  # of the model: there is a request before each
    assert [one.before for one in played.requests] == answers
    assert [need.before for need in Recording(session()).needs] == answers


def test_what_a_compaction_drops_is_lost_to_the_request_that_needs_it() -> None:
    played, found, (loss,) = run("simple", 6_000)
    assert played.compactions
    assert (found.judged, found.recall, found.recall_of_names, found.starving) == (1, 0, 0, 1)
    assert (loss.message, loss.behind, loss.request, loss.requests) == (2, 20, 11, 1)
    assert (loss.disposition, loss.reason, loss.session) == ("dropped", "older", "s")
    assert NAMES[0] in loss.text and loss.weight == 1
    (rule,) = by_rule([loss])
    assert (rule.disposition, rule.reason, rule.share) == ("dropped", "older", 1)
    numbers = [number + 100 for number in range(len(session()))]  # of the session that is played
    recording = Recording(session(), name="s", numbers=numbers)
    played = play(recording, policy_named("simple"), 6_000)
    (loss,) = needed_again("simple", 6_000, recording, played)
    assert (loss.message, loss.behind) == (102, 120)


def test_a_shortened_text_counts_as_far_as_it_is_there_and_is_lost_by_the_rule_that_cut() -> None:
    played, found, _ = run("ladder", 6_000, session(4, size=6_000))
    assert played.compactions[-1].dispositions[2] == ("shortened", "old_result")
    assert 2 not in played.requests[-2].whole
    assert found.recall == 1
    messages = session(4, size=6_000)
    name, filler = messages[2]["content"].split("\n")
    middle = len(filler) // 2
    messages[2]["content"] = f"{filler[:middle]}\n{name}\n{filler[middle:]}"
    *_, (loss,) = run("ladder", 6_000, messages)
    assert (loss.message, loss.disposition, loss.reason) == (2, "shortened", "old_result")


def test_a_failing_policy_leaves_the_decision_to_the_ladder_and_is_counted() -> None:
    def fails(visible: Visible) -> Proposal:
        raise RuntimeError("no idea")

    played, found, _ = run(proposing("broken", fails), 6_000)
    assert {one.fallback for one in played.compactions} == {"RuntimeError: no idea"}
    same, *_ = run("ladder", 6_000)
    assert [one.tokens for one in played.requests] == [one.tokens for one in same.requests]
    assert found.fallbacks == len(played.compactions)


def test_a_compaction_that_drops_the_start_leaves_no_prefix_after_it() -> None:
    oldest = proposing("oldest", lambda seen: drop(seen, [one.number for one in seen.messages][:8]))
    played, *_ = run(oldest, 6_000, [*session(4), *session(9)])
    compacted = {one.before for one in played.compactions}
    assert compacted
    for before, after in pairwise(played.requests):
        assert (after.prefix == before.tokens) == (after.before not in compacted)


@pytest.mark.parametrize(("cached", "cost"), [(0, 125), (100, 10), (40, 79)])
def test_cached_tokens_cost_a_tenth_and_all_others_a_quarter_more(cached: int, cost: int) -> None:
    assert RunFigures(tokens=100, cached=cached).cost() == pytest.approx(cost)
    assert RunFigures(tokens=100, cached=cached).cost(Prices(0, 2)) == 2 * (100 - cached)


def test_recency_keeps_the_newest_rounds_hindsight_what_is_needed_and_chance_some() -> None:
    needs = Recording(session()).needs
    recent, best = [
        set(run(policy, 6_000)[0].requests[-2].whole) for policy in (recency(), hindsight(needs))
    ]
    assert 2 not in recent and {17, 18, 19, 20} <= recent
    assert 2 in best
    long = session(20)
    for policy in (recency(), chance(), hindsight(Recording(long).needs)):  # down to the target
        played, *_ = run(policy, 8_000, long)
        assert {one.tokens_after <= 4_000 for one in played.compactions} == {True}
    first, again, other = (
        [set(one.whole) for one in run(chance(seed), 6_000, session(10) * 2)[0].requests]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_numbers_are_a_set_of_whole_numbers() -> None:
    numbers = NumberSet.of([0, 3, 200])
    assert (list(numbers), len(numbers)) == ([0, 3, 200], 3)
    assert numbers == {0, 3, 200}
    assert [one in numbers for one in (3, -1, "3")] == [True, False, False]
    assert [numbers.isdisjoint(one) for one in ((1, 2), (1, 200))] == [True, False]


@pytest.mark.parametrize("name", ["workset", "ladder", "simple"])
def test_a_compaction_gives_up_what_the_next_request_does_not_begin_with(name: str) -> None:
    played, found, _ = run(name, 6_000, session(20))
    breaks = [
        before.tokens - after.prefix
        for before, after in pairwise(played.requests)
        if after.compactions > before.compactions
    ]
    assert [one.given_up for one in compaction_costs(played)] == breaks != []
    assert found.given_up == sum(breaks)
    assert 0 <= found.rewritten <= found.tokens - found.cached
    assert 0 <= found.rewriting() < found.cost()


def test_a_session_that_grows_evenly_is_compacted_again_when_it_was_expected() -> None:
    _, found, _ = run("simple", 12_000, session(20, size=2_000) * 3)
    expected, lasted = found.requests_expected, found.requests_lasted
    assert found.followed >= 1 and expected is not None and lasted is not None
    assert abs(expected - lasted) <= 1


ALIKE = [(8.0, 10.0)] * 12
MIXED = [(float(held), 10.0) for held in (2, 9, 5, 7, 10, 3, 8, 6, 4, 9, 7, 5)]


def test_a_share_is_over_all_requests_of_all_sessions() -> None:
    assert pooled([(1, 1), (0, 3)]) == 0.25
    assert pooled([(1, 1), (0, 3)], [0, 0, 1]) == 0.4
    assert pooled([(0, 0)]) is None
    # The same sessions are drawn every time.
    assert draws(5) == draws(5) != draws(5, seed=1)
    assert [len(one) for one in draws(5)] == [5] * 1_000


def test_an_interval_holds_the_share_and_has_no_width_where_sessions_are_alike() -> None:
    found, share = interval(MIXED, draws(12)), pooled(MIXED)
    assert found and share and found.low < share < found.high
    # Twelve sessions with a standard deviation of 0.25: about two standard errors to each side.
    assert found.high - found.low == pytest.approx(4 * 0.25 / 12**0.5, rel=0.2)
    alike = interval(ALIKE, draws(12))
    assert alike and (alike.low, alike.high) == (0.8, 0.8)


def test_a_small_difference_in_every_session_is_no_noise_but_one_that_hangs_on_some_is() -> None:
    """However unlike the sessions are."""
    better = [(held + 0.2, count) for held, count in MIXED]
    between = interval_of_difference(better, MIXED, draws(12))
    assert between and between.low == pytest.approx(0.02)
    assert not between.holds_zero
    other = [(held + (1 if place % 2 else -1), 10.0) for place, (held, _) in enumerate(MIXED)]
    between = interval_of_difference(other, MIXED, draws(12))
    assert between and between.holds_zero


def test_between_two_budgets_lies_a_straight_line_and_nothing_outside() -> None:
    curve = [(30.0, 0.9), (10.0, 0.5)]
    for cost, value in ((10, 0.5), (15, 0.6), (30, 0.9)):
        assert at_cost(curve, cost) == pytest.approx(value)
    assert (at_cost(curve, 9.9), at_cost(curve, 31)) == (None, None)
    assert at_cost([(10.0, 0.5)], 10) is None


def test_a_policy_that_is_as_good_for_less_is_better_at_equal_cost() -> None:
    cheap, dear = Curve(MIXED, [10.0] * 12), Curve(MIXED, [20.0] * 12)
    poor = Curve([(held / 2, count) for held, count in MIXED], [5.0] * 12)
    found, share = at_equal_cost(cheap, [poor, dear], draws(12)), pooled(MIXED)
    assert found and share
    by, between = found
    assert by == pytest.approx(share - share * (0.5 + 0.5 / 3))
    assert between and between.low > 0
    assert at_equal_cost(dear, [poor, cheap], draws(12)) is None


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


@one_process_reads
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("policy", FREE)
async def test_a_recording_plays_alike(policy: str, budget: int, recorded_sessions: Path) -> None:
    paths = [recorded_sessions / name for name in SESSIONS]
    for _, recorded in await filling(paths, budget, FREE.index(policy), every=6):
        messages = beginning(recorded.messages, budget)
        await check_equal(messages, policy, budget, recorded.model)


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
