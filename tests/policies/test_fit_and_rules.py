"""When a compaction is due, the fit stage, and the rules for any policy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventctx.errors import InvalidPlan
from eventctx.log.plan import Plan, expand, find, runs_of
from eventctx.messages.shorten import Limit, shorten
from eventctx.policies.fit import fit
from eventctx.policies.policy import Budget, NewInsertion, Proposal
from eventctx.policies.rules import check
from eventctx.policies.trigger import due, make_budget
from eventctx.policies.working_set import keep_whole
from tests.policies.given import ROOMY, asks, model, system, tells, user, view

# -- when ----------------------------------------------------------------------------------------


def test_a_compaction_is_due_where_the_view_grew_to_the_threshold_again_or_is_too_large() -> None:
    budget = make_budget(1_000, 0.92, 0.5)
    assert (budget.threshold, budget.target) == (920, 500)
    for left, *sizes in (
        (0, (919, None), (920, "threshold"), (1_001, "budget")),
        (400, (920, "threshold")),
        (500, (919, None), (920, "threshold")),
        (530, (949, None), (950, "threshold")),
        (700, (1_000, None), (1_001, "budget")),
    ):
        assert [(tokens, due(tokens, 5, budget, left, None)) for tokens, _ in sizes] == sizes
    assert due(10, 101, budget, 0, 100) == "max_messages"
    assert due(10, 100, budget, 0, 100) is None


# -- fit -----------------------------------------------------------------------------------------


def test_what_fits_is_left_alone_then_old_results_go_first_then_arguments_then_rounds() -> None:
    rows = [user("go")]
    for n in range(6):
        rows += [asks(f"c{n}", size=3_000), tells(f"c{n}", 6_000)]
    visible = view(*rows)
    fitted = fit(visible, keep_whole(visible), ROOMY)
    assert (fitted.proposal.limits, fitted.overflow, fitted.tokens) == ({}, {}, visible.tokens)
    results = fit(visible, keep_whole(visible), Budget(40_000, 20_000, 15_000)).proposal.limits
    assert all(limit.arguments is None for limit in results.values())
    assert min(results) == 2  # the oldest result
    both = fit(visible, keep_whole(visible), Budget(10_000, 9_000, 6_000)).proposal.limits
    assert any(limit.arguments is not None for limit in both.values())
    dropped = fit(visible, keep_whole(visible), Budget(4_000, 3_600, 2_000)).proposal.dispositions
    gone = sorted(n for n, (d, _) in dropped.items() if d == "dropped")
    assert gone and gone == list(range(1, len(gone) + 1))


def test_the_round_in_progress_is_shortened_only_when_nothing_else_is_left() -> None:
    visible = view(
        user("go"), *(row for n in range(5) for row in (asks(f"{n}"), tells(f"{n}", 1_600)))
    )
    limits = fit(visible, keep_whole(visible), Budget(2_600, 2_400, 2_000)).proposal.limits
    assert limits and 10 not in limits
    tight = fit(visible, keep_whole(visible), Budget(400, 300, 200))
    assert 10 in tight.proposal.limits
    assert tight.tokens <= 400 and tight.overflow == {}


def test_an_overflow_names_its_parts_and_they_add_up() -> None:
    rows = [system("s" * 3_300), user("pin " * 800), user("h" * 6_600), asks("c"), tells("c")]
    visible = view(*rows, pins=(1,))
    fitted = fit(visible, keep_whole(visible), Budget(1_000, 900, 500))
    assert sum(fitted.overflow.values()) == fitted.tokens > 1_000
    parts = "system messages", "latest human message"
    assert [fitted.overflow[part] for part in parts] == [1_004, 2_004]
    assert fitted.overflow["open round"] > 0


def test_shortened_arguments_stay_json_and_short_ones_stay_whole() -> None:
    row = asks("c", size=9_000)
    long = '{"path":"a.py","text":"' + "x" * 9_000 + '"}'
    row["tool_calls"][0]["function"]["arguments"] = long
    (call,) = shorten(row, 3, Limit(arguments=500))["tool_calls"]
    parsed = msgspec.json.decode(call["function"]["arguments"])
    assert parsed["path"] == "a.py" and len(parsed["text"]) < 700
    block = {"type": "tool_use", "id": "c", "input": {"deep": {"list": ["y" * 9_000, 5, None]}}}
    made = shorten({"role": "assistant", "content": [block]}, 3, Limit(arguments=500))
    first, *others = made["content"][0]["input"]["deep"]["list"]
    assert others == [5, None] and len(first) < 700
    item = {"type": "mcp_call", "id": "m", "name": "f", "arguments": long, "output": "y"}
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
    decided = {**keep_whole(visible).dispositions, **changes}
    proposal = Proposal({n: d for n, d in decided.items() if d is not None})
    with pytest.raises(InvalidPlan, match=rule) as caught:
        check(visible, proposal)
    assert set(caught.value.numbers) & set(changes) or rule.startswith("a tool round")


def test_a_plan_without_the_message_to_be_answered_is_refused() -> None:
    after_a_person = [user("go"), model("x"), user("<system-reminder>y</system-reminder>")]
    for rows in (after_a_person, [model("x"), model("y")]):
        visible = view(*rows)
        decided = {**keep_whole(visible).dispositions, len(rows) - 1: ("dropped", "x")}
        with pytest.raises(InvalidPlan, match="the message to be answered stays"):
            check(visible, Proposal(decided))


def test_nothing_can_be_inserted_into_a_round() -> None:
    visible = view(user("go"), asks("c"), tells("c"))
    note = NewInsertion("notice", user("note"), before=2)
    with pytest.raises(InvalidPlan, match="nothing is inserted into a round"):
        check(visible, Proposal(keep_whole(visible).dispositions, insertions=(note,)))
    fine = msgspec.structs.replace(note, before=1)
    check(visible, Proposal(keep_whole(visible).dispositions, insertions=(fine,)))


# -- plans ---------------------------------------------------------------------------------------


def test_runs_join_what_is_alike_are_found_by_number_and_make_a_small_plan() -> None:
    decided: list[Any] = [(n, "kept" if n % 10 else "dropped", "older") for n in range(100)]
    runs = runs_of(decided)
    assert len(runs) == 20
    assert list(expand(runs)) == decided
    for number, disposition, _ in decided:
        run = find(runs, number)
        assert run and run.disposition == disposition
    assert find(runs, 100) is find((), 0) is None
    decided = [(n, "dropped", "older") for n in range(9_990)]
    decided += [(n, "kept", "recent") for n in range(9_990, 10_000)]
    assert len(msgspec.json.encode(Plan(through=9_999, runs=runs_of(decided)))) < 200
