"""Policies compared over sessions of a store, and a user's own in a test."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.comparison.compare import Comparison
from eventctx.comparison.contenders import budgets_of, contenders
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.policies.named import policy_named
from eventctx.policies.policy import Proposal, Visible
from eventctx.policies.proposals import keep_only
from eventctx.stores.memory import MemoryStore
from eventctx.testing import compare_policies
from tests.comparison.given import proposing, session, user
from tests.policies.advisers import Scripted

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
    whole, hindsight = found.row("whole"), found.row("hindsight", 6_000)
    simple = found.row("simple", 6_000)
    assert (whole.evidence.value, whole.demands, whole.compactions) == (1, 1, 0)
    assert (hindsight.evidence.value, simple.evidence.value) == (1, 0)
    assert simple.tokens < whole.tokens
    assert [one.session for one in found.sessions] == ["s0", "s1"]


async def test_a_difference_is_to_the_first_policy_with_the_same_budget() -> None:
    sessions = [session(rounds) for rounds in range(10, 16)]
    found = await compared(sessions, "simple", "hindsight", "ladder")
    simple, hindsight, ladder = [
        found.row(name).evidence for name in ("simple", "hindsight", "ladder")
    ]
    assert (simple.difference, hindsight.difference) == (None, None)
    assert ladder.difference and ladder.difference.value == ladder.value


def keeping(first: int) -> Any:
    """Keeps so many messages of the start, of which the first round is needed at the end."""

    def propose(visible: Visible) -> Proposal:
        numbers = [ref.number for ref in visible.messages]
        return keep_only(visible, {*numbers[:first], *numbers[-4:]})

    return proposing("keeper", propose)


@pytest.mark.parametrize(("sessions", "noise"), [(2, True), (5, True), (6, False)])
async def test_a_few_sessions_that_point_the_same_way_may_do_so_by_chance(
    sessions: int, noise: bool
) -> None:
    found = await compared([session()] * sessions, "recency", keeping(3))
    difference = found.row("keeper").evidence.difference
    assert difference and difference.interval and not difference.interval.holds_zero
    assert difference.within_noise is noise


async def test_losses_say_what_to_ask_next() -> None:
    engine = await store_of(session())
    found = await engine.compare(["s0"], policies=["simple"], budgets=[6_000], losses=1)
    (loss,) = found.losses
    assert (loss.policy, loss.budget, loss.session, loss.message) == ("simple", 6_000, "s0", 2)
    assert (await engine.why(loss.session, loss.message)).number == 2


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


# -- policies and budgets ------------------------------------------------------------------------


def test_a_policy_may_have_settings_of_its_own_and_of_the_session() -> None:
    (one,) = contenders(["simple:keep_recent=3:target_usage=0.3"])
    assert (one.label, one.target) == ("simple:keep_recent=3:target_usage=0.3", 0.3)
    assert one.make(()) == policy_named("simple", {"keep_recent": 3})
    (custom,) = contenders(["custom:function=eventctx.policies.proposals:keep_only"])
    assert custom.make(()) is not None


def test_without_a_list_every_policy_is_compared_that_needs_no_function() -> None:
    labels = [one.label for one in contenders(None)]
    assert {"ladder", "simple", "truncate", "importance", "token-budget"} <= set(labels)
    assert not {"custom", "summarize"} & set(labels)


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


# -- functions of the user's ---------------------------------------------------------------------


ASKS = ["summarize", "ladder"]


async def test_a_policy_that_asks_gets_the_users_own_function() -> None:
    scripted = Scripted()
    found = await compare_policies([session(14)], ASKS, budgets=[6_000], summarizer=scripted)
    first = scripted.requests[0]
    assert first.messages[0] == session(14)[first.numbers[0]]
    row = found.row("summarize")
    assert (row.fallbacks, row.compactions > 0) == (0, True)


async def test_a_function_that_fails_leaves_the_decision_to_the_ladder() -> None:
    failing = Scripted(*[RuntimeError("down")] * 99)
    found = await compare_policies([session(14)], ASKS, budgets=[6_000], summarizer=failing)
    row, ladder = found.row("summarize"), found.row("ladder")
    assert row.fallbacks == row.compactions > 0
    assert row.tokens == ladder.tokens


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
