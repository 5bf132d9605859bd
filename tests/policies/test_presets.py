"""The ladder, and the presets for compatibility, beside what test_every_policy holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_event
from eventctx.messages.facts_reader import read_facts
from eventctx.policies.advisers import ModelAnswer
from eventctx.policies.fit import line_to_drop_to
from eventctx.policies.ladder import Ladder
from eventctx.policies.policy import Budget, Policy, PolicyState, Proposal, Scores, Visible
from eventctx.policies.presets import Importance, Simple, Truncate, importance_of
from tests.loop_time import LIMIT, hang_past_the_limit
from tests.policies.advisers import Scripted, check_fallback
from tests.policies.given import (
    DUE,
    MANUAL,
    ROOMY,
    Row,
    asks,
    decided,
    keeps_the_rules,
    model,
    staying,
    system,
    tells,
    user,
    view,
)
from tests.sessions import tool_round


def turns(count: int, result: int = 2_000, words: int = 100, arguments: int = 2) -> list[Row]:
    """Closed turns: a question, a tool round, an answer; four rows each."""
    rows: list[Row] = []
    for n in range(count):
        rows += [user(f"question {n} " + "w" * words), asks(f"c{n}", size=arguments)]
        rows += [tells(f"c{n}", result), model(f"answer {n}")]
    return rows


def loop(count: int, result: int = 2_000) -> list[Row]:
    """A question and the tool rounds on it, of which the last waits for the model."""
    rounds = [(asks(f"o{n}"), tells(f"o{n}", result)) for n in range(count)]
    return [user("the question that is open"), *(row for one in rounds for row in one)]


def reasons(proposal: Proposal) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, (_, reason) in sorted(proposal.dispositions.items()):
        found.setdefault(reason, []).append(number)
    return found


def down_to(visible: Visible, share: float, **options: Any) -> Proposal:
    """The proposal for a budget whose target is this share of the view."""
    target = int(visible.tokens * share)
    return decided(Ladder(**options), visible, Budget(target * 2, target * 18 // 10, target))


def test_old_results_go_first_oldest_first_and_only_as_far_as_needed() -> None:
    visible = view(*turns(10))
    untouched = down_to(visible, 1.0)
    assert (staying(untouched), untouched.limits) == (list(range(40)), {})
    proposal = down_to(visible, 0.85)
    shortened = reasons(proposal)["old_result"]
    assert 1 <= len(shortened) <= 3
    assert shortened == [2, 6, 10][: len(shortened)]
    assert len(staying(proposal)) == 40
    # The last result that is shortened keeps what there is room for.
    *kept, last = [one.outcome or 0 for _, one in sorted(down_to(visible, 0.9).limits.items())]
    assert set(kept) <= {250} and 250 <= last < 2_000


def test_then_arguments_are_shortened_then_rounds_are_dropped_and_words_stay() -> None:
    found = reasons(down_to(view(*turns(10, result=400, arguments=3_000)), 0.75))
    assert found["old_arguments"][0] == 1
    assert "old_round" not in found
    dropped = set(reasons(down_to(view(*turns(20, result=300)), 0.5))["old_round"])
    words = set(range(0, 80, 4))
    assert {1, 2, 3} <= dropped and not words & dropped
    assert min(set(range(80)) - dropped - words) > max(dropped) - 4


def test_what_a_person_said_is_cut_before_it_is_dropped_but_what_is_short_and_the_task() -> None:
    rows = [user("task")]
    for n in range(20):
        rows += [user(f"short {n}" if n % 2 else "long " * 500), *tool_round(n)]
    found = down_to(view(*rows), 0.3).dispositions
    shortened = [str(rows[n]["content"]) for n, (what, _) in found.items() if what == "shortened"]
    assert shortened and all(text.startswith("long") for text in shortened)
    cut = reasons(down_to(view(*turns(20, result=10, words=2_000)), 0.4))["old_words"]
    assert cut[0] == 4 and 0 not in cut


def whole(proposal: Proposal, numbers: range) -> bool:
    return {proposal.dispositions[number][0] for number in numbers} == {"kept"}


def test_an_open_loop_is_entered_where_nothing_else_is_left_or_on_demand() -> None:
    assert whole(down_to(view(*turns(10), *loop(3)), 0.5), range(40, 47))
    visible = view(user("the task"), *loop(20))
    budget = Budget(visible.tokens, visible.tokens * 9 // 10, visible.tokens // 2)
    fitted = keeps_the_rules(Ladder(), visible, budget)
    assert fitted.tokens <= budget.target
    # The round in progress, and the last results before it, are as they were.
    assert whole(fitted.proposal, range(36, 42))
    visible = view(*turns(2), *loop(20))
    budget = Budget(visible.tokens * 2, visible.tokens * 18 // 10, visible.tokens // 2)
    assert visible.tokens <= line_to_drop_to(budget)
    assert whole(decided(Ladder(), visible, budget, DUE), range(8, 49))
    assert keeps_the_rules(Ladder(), visible, budget, MANUAL).tokens <= budget.target


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6, 0.45, 0.3])
def test_the_target_is_met_and_not_missed_by_much(share: float) -> None:
    visible = view(*turns(40, result=1_500, words=200))
    target = int(visible.tokens * share)
    fitted = keeps_the_rules(Ladder(), visible, Budget(target * 2, target * 18 // 10, target))
    assert target * 0.93 <= fitted.tokens <= target


# -- the presets: what stays ---------------------------------------------------------------------


TIGHT = Budget(10_000, 9_200, 5_000)
STEPS = [model(f"{n}") for n in range(60)]
ROUND = [user("go"), model("well"), asks("a", "b"), tells("a"), tells("b"), user("on")]
CLOSED = [(user(f"question {n}"), asks(f"c{n}"), tells(f"c{n}"), model("answer")) for n in range(6)]
TURNS = [row for turn in CLOSED for row in turn]
GREETED = [model("hello"), user("one"), model("1"), user("two")]
TOO_MANY = PolicyState("max_messages")


@pytest.mark.parametrize(
    ("policy", "rows", "state", "stay"),
    [
        (Truncate(keep_recent=20), [system("s"), user("go"), *STEPS], DUE, [0, 1, *range(42, 62)]),
        (Truncate(keep_recent=2), ROUND, DUE, [0, 2, 3, 4, 5]),
        (Truncate(keep_recent=1, keep_turns=3), TURNS, DUE, [0, 4, 8, *range(12, 24)]),
        (Truncate(keep_turns=2), GREETED, DUE, [1, 2, 3]),
        (Truncate(keep_turns=3), GREETED, DUE, [0, 1, 2, 3]),
        (Truncate(max_messages=50), [user("go"), *STEPS], TOO_MANY, [0, *range(36, 61)]),
        (Truncate(50, 3, 50), [user("go"), *STEPS], TOO_MANY, [0, *range(36, 61)]),
        (Simple(), [system("s"), user("go"), *STEPS], MANUAL, [0, 1, *range(52, 62)]),
        (Simple(keep_recent=2), ROUND, MANUAL, [0, 2, 3, 4, 5]),
    ],
)
def test_the_most_recent_messages_or_turns_stay_in_whole_rounds(
    policy: Policy, rows: list[Row], state: PolicyState, stay: list[int]
) -> None:
    assert staying(decided(policy, view(*rows), ROOMY, state)) == stay


def test_simple_merges_by_role_and_first_hundred_characters_but_no_persons_words() -> None:
    long = "x" * 100
    rows = [user(long), model(long + "one"), user(long), model(long + "two"), asks("a"), tells("a")]
    found = decided(Simple(), view(*rows, asks("b"), tells("b"), user("other"))).dispositions
    assert found[1] == ("merged", "duplicate")
    assert [n for n, (what, _) in found.items() if what == "kept"] == [0, 2, 3, 4, 5, 6, 7, 8]


# -- importance: the built-in score --------------------------------------------------------------


def answers(count: int, size: int = 1_000) -> list[Row]:
    return [model(f"{n} " + "a" * size) for n in range(count)]


def proposed(visible: Visible, **options: Any) -> Proposal:
    return decided(Importance(**options), visible, TIGHT)


def test_a_person_counts_more_than_an_answer_a_call_a_result_and_a_harness() -> None:
    call, result = tool_round(1)
    hook = user("<system-reminder>be careful</system-reminder>")
    order = [user("do it"), model("done"), call, result, hook]
    found = [importance_of(read_facts(message)) for message in order]
    assert found == sorted(set(found), reverse=True)
    assert all(0 <= value <= 1 for value in found)


def test_recency_alone_keeps_the_newest_size_alone_the_smallest_and_of_equals_the_newer() -> None:
    kept = staying(proposed(view(user("go"), *answers(40)), recency_weight=0.0))
    assert kept == [0, *range(41 - len(kept) + 1, 41)]
    alone = {"recency_weight": 0.0, "importance_weight": 0.0, "size_weight": 0.0, "keep_recent": 0}
    rows = view(*answers(40), user("end"))
    newest = staying(proposed(rows, **{**alone, "recency_weight": 1}))
    assert newest == list(range(41 - len(newest), 41))
    rows = view(user("go"), *answers(20, 2_000), *answers(10, 9), *answers(20, 2_000), user("end"))
    assert set(range(21, 31)) <= set(staying(proposed(rows, **{**alone, "size_weight": 1.0})))


def test_a_round_has_the_score_of_its_best_member_and_stays_whole() -> None:
    visible = view(
        user("go"), *(row for n in range(60) for row in tool_round(n)), user("end"), model("x")
    )
    proposal = proposed(visible)
    kept = set(staying(proposal))
    for group in visible.groups:
        assert len(kept & set(group.rows)) in (0, len(group.rows))
        assert len({proposal.scores.get(row) for row in group.rows}) == 1


def test_what_stays_is_within_the_target_and_every_message_says_why() -> None:
    rows = [system("s"), user("go"), *answers(60), user("end"), model("x")]
    visible = view(*rows, pins=(5,))
    proposal = proposed(visible, keep_recent=1)
    tokens = sum(visible.messages[number].tokens for number in staying(proposal))
    assert TIGHT.target - 400 < tokens <= TIGHT.target
    reasons = "system pinned latest_human task protected important unimportant"
    assert {reason for _, reason in proposal.dispositions.values()} == {*reasons.split()}
    # One round too large for the room does not keep smaller ones out.
    rows = [user("go"), *answers(8), model("important " + "x" * 12_000), *answers(8), user("end")]
    kept = staying(proposed(view(*rows), keep_recent=1))
    assert 9 not in kept and len(kept) > 8


def test_an_open_tool_loop_is_entered_last() -> None:
    rows = [*answers(30), user("now"), *(row for n in range(5) for row in tool_round(n, 400))]
    proposal = proposed(view(*rows), recency_weight=0.0, keep_recent=0)
    assert set(range(30, 41)) <= set(staying(proposal))
    longer = [user("now"), *(row for n in range(60) for row in tool_round(n, 400))]
    assert len(staying(proposed(view(*longer)))) < len(longer)


# -- importance: scores from a model -------------------------------------------------------------


def scored(visible: Visible, ask: Any, scores: dict[int, float], **options: Any) -> Proposal:
    given = {number: scores.get(number, 0.0) for number in ask.numbers}
    state = PolicyState("threshold", answers={ask.key: Scores(given)})
    proposal = Importance(scorer="model", **options).propose(visible, TIGHT, state)
    assert isinstance(proposal, Proposal)
    return proposal


def test_a_models_scores_of_what_could_go_decide_with_recency_and_size() -> None:
    visible = view(user("go"), *answers(40), user("end"), pins=(7,))
    ask: Any = Importance(scorer="model").propose(visible, TIGHT, DUE)
    assert (ask.numbers, ask.key) == ((*range(1, 7), *range(8, 36)), "scores 1-35")
    best = {3: 1.0, 9: 0.9, 12: 0.8}
    proposal = scored(visible, ask, best)
    assert best.keys() <= set(staying(proposal))
    assert proposal.scores[13] < proposal.scores[14]
    alone = scored(visible, ask, best, recency_weight=0.0).scores
    assert alone[3] > alone[9] > alone[12] > alone[13] == alone[14]
    # Messages that came meanwhile get the built-in score, and nothing is asked again.
    ask = Importance(scorer="model").propose(view(user("go"), *answers(40)), TIGHT, DUE)
    proposal = scored(view(user("go"), *answers(60)), ask, {})
    assert set(range(50, 61)) <= set(staying(proposal))


async def opened(engine: Engine, scorer: Any, **options: Any) -> Any:
    options = {"max_tokens": 10_000, "prepare_at": None, **options}
    ctx = await engine.session("s", policy=Importance(scorer="model"), scorer=scorer, **options)
    await ctx.add_messages([user("go"), *answers(40)])
    return ctx


async def test_the_scorer_gets_the_messages_and_its_scores_are_recorded_with_the_plan() -> None:
    async with eventctx.open() as engine:
        with pytest.raises(InvalidSetting, match="scorer="):
            await engine.session("other", policy=Importance(scorer="model"))
        scorer = Scripted()
        ctx = await opened(engine, scorer)
        assert (await ctx.compact(keep="the port number")).outcome == "applied"
        (request,) = scorer.requests
        transcript = await ctx.get_messages()
        assert request.hint == "the port number"
        assert list(request.messages) == [transcript[number] for number in request.numbers]
        records = [record async for record in engine.records("s", bodies=True)]
        (record,) = [one for one in records if one.type == "context:post_compact"]
        event: Any = decode_event(record)
        numbers, scores = zip(*msgspec.json.decode(record.bodies[event.scores].data), strict=True)
        assert numbers == request.numbers
        assert all(0 <= score <= 1 for score in scores)


def with_one(value: Any) -> Any:
    return lambda request: [0.5] * (len(request.numbers) - 1) + [value]


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        (Scripted(RuntimeError("the model is down")), "raised RuntimeError: the model is down"),
        *[
            (Scripted(with_one(one)), f"{one!r}; expected a number from 0 to 1")
            for one in (float("nan"), "0.5", None, True, 7, -0.2)
        ],
        (Scripted(with_one(10**400)), "expected a number from 0 to 1"),
        (Scripted([0.5, 0.5]), "expected 34 scores"),
        (Scripted(lambda request: {0: 0.5}), "expected a number from 0 to 1"),
        (Scripted(lambda request: "x" * len(request.numbers)), "expected a number from 0 to 1"),
        (Scripted(None), "answered None; expected 34 scores"),
        (Scripted(ModelAnswer([])), "expected 34 scores"),
        (hang_past_the_limit, "the scorer took longer than its time-out"),
    ],
)
async def test_a_bad_answer_ends_in_the_ladder_and_says_why(scorer: Any, said: str) -> None:
    async with eventctx.open() as engine:
        limit = {"adviser_timeout": LIMIT} if scorer is hang_past_the_limit else {}
        await check_fallback(engine, await opened(engine, scorer, **limit), said)
