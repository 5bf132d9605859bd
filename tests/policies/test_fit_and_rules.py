"""When a compaction is due, the fit stage, and the rules for any policy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventctx.errors import InvalidPlan
from eventctx.log.codec import decode_event
from eventctx.log.plan import Plan, expand, find, runs_of
from eventctx.messages.shorten import Limit, shorten
from eventctx.messages.tool_rounds import group_rows
from eventctx.policies.fit import fit
from eventctx.policies.policy import Budget, NewInsertion, PolicyState, Proposal, Visible
from eventctx.policies.rules import check
from eventctx.policies.trigger import due, make_budget
from tests.policies.given import ROOMY, asks, model, one_session, system, tells, user, view

# -- when ----------------------------------------------------------------------------------------


def test_a_compaction_is_due_at_the_threshold_the_budget_or_the_message_count() -> None:
    budget = make_budget(1_000, 0.92, 0.5)
    assert (budget.threshold, budget.target) == (920, 500)
    assert due(919, 5, budget, 0, None) is None
    assert due(920, 5, budget, 0, None) == "threshold"
    assert due(1_001, 5, budget, 0, None) == "budget"
    assert due(10, 101, budget, 0, 100) == "max_messages"
    assert due(10, 100, budget, 0, 100) is None


def test_the_next_compaction_waits_until_the_view_grew_from_target_to_threshold_once_more() -> None:
    budget = make_budget(1_000, 0.92, 0.5)
    assert due(919, 5, budget, 500, None) is None
    assert due(920, 5, budget, 500, None) == "threshold"
    assert due(920, 5, budget, 400, None) == "threshold"
    assert due(949, 5, budget, 530, None) is None
    assert due(950, 5, budget, 530, None) == "threshold"
    assert due(1_000, 5, budget, 700, None) is None
    assert due(1_001, 5, budget, 700, None) == "budget"


# -- fit -----------------------------------------------------------------------------------------


def everything(visible: Visible) -> Proposal:
    return Proposal({ref.number: ("kept", "recent") for ref in visible.messages})


def test_what_fits_is_left_alone() -> None:
    visible = view(user("a"), asks("x"), tells("x", 5_000), model("b"))
    fitted = fit(visible, everything(visible), ROOMY)
    assert (fitted.proposal.limits, fitted.overflow) == ({}, {})
    assert fitted.tokens == visible.tokens


def test_old_results_go_first_then_arguments_then_the_oldest_rounds() -> None:
    rows = [user("go")]
    for n in range(6):
        rows += [asks(f"c{n}", size=3_000), tells(f"c{n}", 6_000)]
    visible = view(*rows)
    results = fit(visible, everything(visible), Budget(40_000, 20_000, 15_000))
    assert all(limit.arguments is None for limit in results.proposal.limits.values())
    assert min(results.proposal.limits) == 2  # the oldest result
    both = fit(visible, everything(visible), Budget(10_000, 9_000, 6_000))
    assert any(limit.arguments is not None for limit in both.proposal.limits.values())
    dropped = fit(visible, everything(visible), Budget(4_000, 3_600, 2_000)).proposal.dispositions
    gone = sorted(n for n, (d, _) in dropped.items() if d == "dropped")
    assert gone == list(range(1, len(gone) + 1))
    assert gone


def test_the_round_in_progress_is_shortened_only_when_nothing_else_is_left() -> None:
    rows = [user("go")]
    for n in range(5):
        rows += [asks(f"c{n}"), tells(f"c{n}", 1_600)]
    visible = view(*rows)
    fitted = fit(visible, everything(visible), Budget(2_600, 2_400, 2_000))
    assert fitted.proposal.limits
    assert 10 not in fitted.proposal.limits
    tight = fit(visible, everything(visible), Budget(400, 300, 200))
    assert 10 in tight.proposal.limits
    assert tight.tokens <= 400
    assert tight.overflow == {}


def test_an_overflow_names_its_parts_and_they_add_up() -> None:
    rows = [system("s" * 3_300), user("pin " * 800), user("h" * 6_600), asks("c"), tells("c")]
    visible = view(*rows, pins=(1,))
    fitted = fit(visible, everything(visible), Budget(1_000, 900, 500))
    assert sum(fitted.overflow.values()) == fitted.tokens > 1_000
    assert fitted.overflow["system messages"] == 1_004
    assert fitted.overflow["latest human message"] == 2_004
    assert fitted.overflow["open round"] > 0


def test_shortened_arguments_stay_json_and_short_ones_stay_whole() -> None:
    row = asks("c", size=9_000)
    row["tool_calls"][0]["function"]["arguments"] = '{"path":"a.py","text":"' + "x" * 9_000 + '"}'
    made = shorten(row, 3, Limit(arguments=500))
    parsed = msgspec.json.decode(made["tool_calls"][0]["function"]["arguments"])
    assert parsed["path"] == "a.py"
    assert len(parsed["text"]) < 700
    blocks = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "input": {}}]}
    blocks["content"][0]["input"] = {"deep": {"list": ["y" * 9_000, 5, None]}}  # type: ignore[index]
    made = shorten(blocks, 3, Limit(arguments=500))
    assert made["content"][0]["input"]["deep"]["list"][1:] == [5, None]
    assert len(made["content"][0]["input"]["deep"]["list"][0]) < 700


def test_the_arguments_of_a_call_that_the_provider_answers_are_shortened_and_stay_json() -> None:
    arguments = '{"text":"' + "x" * 5_000 + '"}'
    item = {"type": "mcp_call", "id": "m", "name": "f", "arguments": arguments, "output": "y"}
    made = shorten(item, 3, Limit(arguments=500))
    assert len(msgspec.json.decode(made["arguments"])["text"]) < 700
    assert made["output"] == "y"


# -- rules for any policy ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({0: ("dropped", "x")}, "system messages stay"),
        ({1: ("dropped", "x")}, "pinned messages stay"),
        ({2: ("merged", "x")}, "the latest human message stays"),
        ({3: ("dropped", "x")}, "a tool round stands or falls as one"),
        ({4: ("summarised", "x")}, "a tool round stands or falls as one"),
        ({4: ("shortened", "x")}, "a shortened message has a limit"),
        ({5: None}, "every message has a disposition"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused_by_name(changes: dict[int, Any], rule: str) -> None:
    visible = view(
        system("s"), user("pin"), user("go"), asks("c"), tells("c"), model("x"), pins=(1,)
    )
    decided = {**everything(visible).dispositions, **changes}
    proposal = Proposal({n: d for n, d in decided.items() if d is not None})
    with pytest.raises(InvalidPlan, match=rule) as caught:
        check(visible, proposal)
    assert set(caught.value.numbers) & set(changes) or rule.startswith("a tool round")


@pytest.mark.parametrize(
    "rows",
    [
        [
            user("go"),
            model("x"),
            {"role": "user", "content": "<system-reminder>y</system-reminder>"},
        ],
        [model("x"), model("y")],
    ],
    ids=["a harness's words after a person's", "nothing but answers"],
)
def test_a_plan_without_the_message_to_be_answered_is_refused(rows: list[Any]) -> None:
    visible = view(*rows)
    last = len(rows) - 1
    decided = {**everything(visible).dispositions, last: ("dropped", "x")}
    with pytest.raises(InvalidPlan, match="the message to be answered stays"):
        check(visible, Proposal(decided))


def test_nothing_can_be_inserted_into_a_round() -> None:
    visible = view(user("go"), asks("c"), tells("c"))
    note = NewInsertion("notice", user("note"), before=2)
    with pytest.raises(InvalidPlan, match="nothing is inserted into a round"):
        check(visible, Proposal(everything(visible).dispositions, insertions=(note,)))
    fine = msgspec.structs.replace(note, before=1)
    check(visible, Proposal(everything(visible).dispositions, insertions=(fine,)))


class Summary:
    """A policy of a user's own: a summary stands for all but the last round."""

    name = "mine"
    version = 3
    max_messages = None

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        decided: dict[int, Any] = {}
        groups = group_rows([ref.facts for ref in visible.messages])
        for group in groups:
            for row in group.rows:
                ref = visible.messages[row]
                keep = ref.facts.human or group is groups[-1]
                decided[ref.number] = ("kept", "recent") if keep else ("summarised", "summary")
        gone = [n for n, (d, _) in decided.items() if d == "summarised"]
        text = user(f"[Summary of {len(gone)} messages: all went well.]")
        spans = ((gone[0], gone[-1]),) if gone else ()
        return Proposal(decided, insertions=(NewInsertion("summary", text, None, spans),))


async def test_a_policy_of_ones_own_goes_through_the_same_seam() -> None:
    async with one_session(policy=Summary(), max_tokens=1_500) as (engine, ctx):
        await ctx.add_message(user("go"))
        for n in range(9):
            await ctx.add_messages([asks(f"c{n}"), tells(f"c{n}", 600)])
        messages = await ctx.get_messages_for_request()
        assert messages[0] == user("[Summary of 16 messages: all went well.]")
        assert [m["role"] for m in messages] == ["user", "user", "assistant", "tool"]
        found = [r async for r in engine.records("s") if r.type == "context:post_compact"]
        event: Any = decode_event(found[0])
        assert (event.strategy, event.strategy_version) == ("mine", 3)
        assert event.plan.insertions[0].stands_for == ((1, 16),)
        row = (await engine.audit("s")).requests[-1]
        assert (row.counts.kept, row.counts.summarised, row.insertions) == (3, 16, 1)
        view = await engine.request_view("s", position=row.position)
        assert view.verified
        assert view.messages == messages


# -- plans ---------------------------------------------------------------------------------------


def test_runs_join_what_is_alike_and_are_found_by_number() -> None:
    decided = [(n, "kept" if n % 10 else "dropped", "older") for n in range(100)]
    runs = runs_of(decided)  # type: ignore[arg-type]
    assert len(runs) == 20
    assert list(expand(runs)) == decided
    for number, disposition, _ in decided:
        run = find(runs, number)
        assert run is not None
        assert run.disposition == disposition
    assert find(runs, 100) is None
    assert find((), 0) is None


def test_a_plan_over_ten_thousand_messages_is_small() -> None:
    decided = [(n, "dropped", "older") for n in range(9_990)]
    decided += [(n, "kept", "recent") for n in range(9_990, 10_000)]
    plan = Plan(through=9_999, runs=runs_of(decided))  # type: ignore[arg-type]
    assert len(msgspec.json.encode(plan)) < 200
