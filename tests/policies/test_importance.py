"""The importance policy: the built-in score, a model's scores, and bad scorers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_event
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import BY_KIND
from eventctx.messages.tool_rounds import group_rows
from eventctx.policies.advisers import ModelAnswer, ScoreRequest
from eventctx.policies.policy import (
    AskScores,
    Budget,
    PolicyState,
    Proposal,
    Scores,
    Visible,
)
from eventctx.policies.presets import Importance, importance_of
from eventctx.projections.presence import REASONS
from eventctx.projections.view.refs import MessageRef
from tests.how_much import some
from tests.loop_time import LIMIT, hang_past_the_limit
from tests.policies.advisers import Scripted, check_fallback, mute
from tests.policies.given import model, play, user
from tests.sessions import tool_round
from tests.transcripts import DIALECTS, Message, refusal, stories

examples = settings(
    max_examples=some(6, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
budgets = st.sampled_from([300, 1_200, 4_000, 20_000])
TIGHT = Budget(10_000, 9_200, 5_000)
THRESHOLD = PolicyState("threshold")


def answers(count: int, size: int = 1_000) -> list[Message]:
    return [model(f"{n} " + "a" * size) for n in range(count)]


def view(rows: list[Message], pins: tuple[int, ...] = ()) -> Visible:
    refs = []
    for number, row in enumerate(rows):
        facts = read_facts(row)
        refs.append(MessageRef(number, number, 0, bytes(32), facts, BY_KIND.tokens(facts)))
    return Visible(refs, (), frozenset(pins), sum(ref.tokens for ref in refs))


def proposed(visible: Visible, budget: Budget = TIGHT, **options: Any) -> Proposal:
    proposal = Importance(**options).propose(visible, budget, THRESHOLD)
    assert isinstance(proposal, Proposal)
    return proposal


def scored(visible: Visible, scores: dict[int, float], **options: Any) -> Proposal:
    policy = Importance(scorer="model", **options)
    ask = policy.propose(visible, TIGHT, THRESHOLD)
    assert isinstance(ask, AskScores)
    given = {number: scores.get(number, 0.0) for number in ask.numbers}
    state = PolicyState("threshold", answers={ask.key: Scores(given)})
    proposal = policy.propose(visible, TIGHT, state)
    assert isinstance(proposal, Proposal)
    return proposal


def staying(proposal: Proposal) -> list[int]:
    return [n for n, (d, _) in proposal.dispositions.items() if d in ("kept", "shortened")]


# -- the built-in score --------------------------------------------------------------------------


def test_a_person_counts_more_than_an_answer_a_call_a_result_and_a_harness() -> None:
    call, result = tool_round(1)
    hook = user("<system-reminder>be careful</system-reminder>")
    order = [user("do it"), model("done"), call, result, hook]
    found = [importance_of(read_facts(message)) for message in order]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 5
    assert all(0 <= value <= 1 for value in found)


def test_an_old_decision_of_the_user_outlives_a_long_tangent_of_tools() -> None:
    rows = [user("start"), user("Use PostgreSQL, never MySQL.")]
    rows += [row for n in range(60) for row in tool_round(n)]
    rows += [user("go on"), model("yes")]
    visible = view(rows)
    proposal = proposed(visible)
    assert {0, 1, len(rows) - 2} <= set(staying(proposal))
    assert proposal.dispositions[0] == ("kept", "task")
    assert proposal.dispositions[1] == ("kept", "demand")
    assert proposal.dispositions[2] == ("dropped", "unimportant")


def test_of_equals_the_newer_stays() -> None:
    visible = view([user("go"), *answers(40)])
    kept = staying(proposed(visible, recency_weight=0.0))
    assert kept == [0, *range(41 - len(kept) + 1, 41)]


def test_with_recency_alone_the_newest_stay_and_with_size_alone_the_smallest() -> None:
    alone = {"recency_weight": 0.0, "importance_weight": 0.0, "size_weight": 0.0, "keep_recent": 0}
    newest = staying(proposed(view([*answers(40), user("end")]), **{**alone, "recency_weight": 1}))
    assert newest == list(range(41 - len(newest), 41))
    rows = [user("go"), *answers(20, 2_000), *answers(10, 100), *answers(20, 2_000), user("end")]
    smallest = staying(proposed(view(rows), **{**alone, "size_weight": 1.0}))
    assert set(range(21, 31)) <= set(smallest)


def test_a_round_has_the_score_of_its_best_member_and_stays_whole() -> None:
    rows = [user("go"), *(row for n in range(60) for row in tool_round(n)), user("end"), model("x")]
    visible = view(rows)
    proposal = proposed(visible)
    kept = set(staying(proposal))
    for group in group_rows([ref.facts for ref in visible.messages]):
        assert len(kept & set(group.rows)) in (0, len(group.rows))
        assert len({proposal.scores.get(row) for row in group.rows}) == 1


def test_one_round_too_large_for_the_room_does_not_keep_smaller_ones_out() -> None:
    rows = [user("go"), *answers(8), model("important " + "x" * 12_000), *answers(8), user("end")]
    kept = staying(proposed(view(rows), keep_recent=1))
    assert 9 not in kept
    assert len(kept) > 8


def test_what_stays_is_kept_within_the_target_in_conversation_order() -> None:
    visible = view([{"role": "system", "content": "s"}, user("go"), *answers(60), user("end")])
    proposal = proposed(visible)
    kept = staying(proposal)
    assert kept == sorted(kept)
    tokens = sum(visible.messages[number].tokens for number in kept)
    assert TIGHT.target - 400 < tokens <= TIGHT.target


def test_the_most_recent_rows_stay_whatever_their_score() -> None:
    rows = [user("go"), *answers(40), *[user("<system-reminder>x</system-reminder>")] * 5]
    proposal = proposed(view(rows), keep_recent=5, recency_weight=0.0)
    assert {proposal.dispositions[n] for n in range(41, 46)} == {("kept", "protected")}


def test_every_message_says_why_it_stays_or_goes() -> None:
    rows = [{"role": "system", "content": "s"}, user("go"), *answers(40), user("end"), model("x")]
    proposal = proposed(view(rows, pins=(5,)), keep_recent=1)
    reasons = {reason for _, reason in proposal.dispositions.values()}
    assert reasons == {
        *("system", "pinned", "latest_human", "task"),
        *("protected", "important", "unimportant"),
    }
    assert reasons <= REASONS.keys()
    assert proposal.dispositions[5] == ("kept", "pinned")


def test_an_open_tool_loop_is_entered_last() -> None:
    rows = [*answers(30), user("now"), *(row for n in range(5) for row in tool_round(n, 400))]
    proposal = proposed(view(rows), recency_weight=0.0, keep_recent=0)
    assert set(range(30, 41)) <= set(staying(proposal))
    longer = [user("now"), *(row for n in range(60) for row in tool_round(n, 400))]
    assert len(staying(proposed(view(longer)))) < len(longer)


def test_a_giant_result_is_shortened_and_drives_nothing_else_out() -> None:
    rows = [user("go"), *answers(8), *tool_round(1, 600_000)]
    budget = Budget(20_000, 18_400, 10_000)
    assert staying(proposed(view(rows), budget)) == list(range(11))


def test_a_view_below_the_target_is_left_as_it_is_without_asking() -> None:
    visible = view([user("go"), *answers(3)])
    for policy in (Importance(), Importance(scorer="model")):
        proposal = policy.propose(visible, TIGHT, THRESHOLD)
        assert isinstance(proposal, Proposal)
        assert (staying(proposal), proposal.scores) == ([0, 1, 2, 3], {})


def test_an_empty_view_gives_an_empty_proposal() -> None:
    assert proposed(view([])) == Proposal({})


# -- scores from a model -------------------------------------------------------------------------


def test_a_models_scores_decide_and_are_recorded_with_recency_and_size() -> None:
    visible = view([user("go"), *answers(40), user("end")])
    proposal = scored(visible, {3: 1.0, 9: 0.9, 12: 0.8})
    assert {3, 9, 12} <= set(staying(proposal))
    alone = scored(visible, {3: 1.0, 9: 0.9, 12: 0.8}, recency_weight=0.0).scores
    assert alone[3] > alone[9] > alone[12] > alone[13] == alone[14]
    assert proposal.scores[13] < proposal.scores[14]
    assert set(proposal.scores) <= set(range(42))


def test_only_what_could_go_is_asked_about() -> None:
    visible = view([user("go"), *answers(40), user("end")], pins=(7,))
    ask = Importance(scorer="model").propose(visible, TIGHT, THRESHOLD)
    assert isinstance(ask, AskScores)
    assert ask.numbers == (*range(1, 7), *range(8, 36))
    assert ask.key == "scores 1-35"


def test_messages_that_came_meanwhile_get_the_built_in_score_and_nothing_is_asked_again() -> None:
    policy = Importance(scorer="model")
    ask = policy.propose(view([user("go"), *answers(40)]), TIGHT, THRESHOLD)
    assert isinstance(ask, AskScores)
    given = Scores(dict.fromkeys(ask.numbers, 0.0))
    state = PolicyState("threshold", answers={ask.key: given})
    proposal = policy.propose(view([user("go"), *answers(60)]), TIGHT, state)
    assert isinstance(proposal, Proposal)
    assert set(range(50, 61)) <= set(staying(proposal))


async def test_a_session_without_a_scorer_is_refused() -> None:
    async with eventctx.open() as engine:
        with pytest.raises(InvalidSetting, match="scorer="):
            await engine.session("s", policy=Importance(scorer="model"))


# -- properties ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("scorer", ["builtin", "model"])
@settings(examples, max_examples=some(3, 60))
@given(data=st.data(), budget=budgets)
def test_a_provider_accepts_every_view_and_the_log_gives_it_again_without_asking(
    dialect: str, scorer: Any, data: st.DataObject, budget: int
) -> None:
    policy = Importance(scorer=scorer, keep_recent=2)
    story = data.draw(stories(dialect, most=24))
    engine, requests = play(policy, story, budget, scorer=Scripted())
    for request in requests:
        assert refusal(request) is None, json.dumps(request, indent=1)

    async def check() -> None:
        for row, request in zip((await engine.audit("s")).requests, requests, strict=True):
            assert row.floor_sent == (row.tokens > budget)
            found = await engine.request_view("s", position=row.position)
            assert (found.verified, found.messages) == (True, request)
        silent = mute()
        again = await Engine(engine.store).session(
            *("s",), policy=policy, scorer=silent, max_tokens=budget, on_overflow="send_floor"
        )
        assert await again.get_messages_for_request() == requests[-1]
        assert silent.requests == []

    asyncio.run(check())


# -- live sessions, and bad scorers --------------------------------------------------------------


async def opened(engine: Engine, scorer: Any, **options: Any) -> Any:
    options = {"max_tokens": 10_000, "prepare_at": None, **options}
    ctx = await engine.session("s", policy=Importance(scorer="model"), scorer=scorer, **options)
    for message in [user("go"), *answers(40)]:
        await ctx.add_message(message)
    return ctx


async def test_the_scores_decided_on_are_recorded_with_the_plan() -> None:
    async with eventctx.open() as engine:
        scorer = Scripted()
        ctx = await opened(engine, scorer)
        await ctx.get_messages_for_request()
        (request,) = scorer.requests
        transcript = await ctx.get_messages()
        assert list(request.messages) == [transcript[number] for number in request.numbers]
        records = [
            record
            async for record in engine.records("s", bodies=True)
            if record.type == "context:post_compact"
        ]
        event: Any = decode_event(records[0])
        pairs = msgspec.json.decode(records[0].bodies[event.scores].data)
        assert [number for number, _ in pairs] == list(request.numbers)
        assert all(0 <= score <= 1 for _, score in pairs)


async def test_what_the_caller_wants_kept_reaches_the_scorer() -> None:
    async with eventctx.open() as engine:
        scorer = Scripted()
        ctx = await opened(engine, scorer)
        assert (await ctx.compact(keep="the port number")).outcome == "applied"
        assert scorer.requests[0].hint == "the port number"


def with_one(value: Any) -> Any:
    return lambda request: [0.5] * (len(request.numbers) - 1) + [value]


BAD: list[tuple[Any, str]] = [
    (RuntimeError("the model is down"), "raised RuntimeError: the model is down"),
    (with_one(float("nan")), "nan; expected a number from 0 to 1"),
    (with_one(float("inf")), "inf; expected a number from 0 to 1"),
    (with_one(10**400), "expected a number from 0 to 1"),
    (with_one("0.5"), "'0.5'; expected a number from 0 to 1"),
    (with_one(None), "None; expected a number from 0 to 1"),
    (with_one(True), "True; expected a number from 0 to 1"),
    (with_one(7), "7; expected a number from 0 to 1"),
    (with_one(-0.2), "-0.2; expected a number from 0 to 1"),
    ([0.5, 0.5], "expected 34 scores"),
    (lambda request: [0.5] * 99, "expected 34 scores"),
    (lambda request: {0: 0.5}, "expected a number from 0 to 1"),
    (lambda request: "x" * len(request.numbers), "expected a number from 0 to 1"),
    (None, "answered None; expected 34 scores"),
    (0.5, "answered 0.5; expected 34 scores"),
    ("important", "answered 'important'; expected 34 scores"),
    (ModelAnswer([]), "expected 34 scores"),
]


@pytest.mark.parametrize(("answer", "said"), BAD)
async def test_a_bad_answer_ends_in_the_ladder_and_says_why(answer: Any, said: str) -> None:
    async with eventctx.open() as engine:
        await check_fallback(engine, await opened(engine, Scripted(answer)), said)


async def test_a_scorer_that_never_answers_ends_in_the_ladder() -> None:
    async def hangs(request: ScoreRequest) -> list[float]:
        await hang_past_the_limit()
        return []

    async with eventctx.open() as engine:
        ctx = await opened(engine, hangs, adviser_timeout=LIMIT)
        await check_fallback(engine, ctx, "the scorer took longer than its time-out")
