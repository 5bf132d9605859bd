"""A compaction in one sentence: why it began, what went, which messages, and for what reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eventctx.log.events import Outcome, PostCompact, Trigger
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.projections.presence import REASONS
from eventctx.projections.trace.compaction import describe_compaction

OLD, LONG = REASONS["old_round"], REASONS["oversize"]


def ended(*runs: Run, outcome: Outcome = "applied", trigger: Trigger = "budget") -> PostCompact:
    plan = Plan(70, runs) if outcome == "applied" else None
    return PostCompact(
        outcome, trigger, "ladder", 1, 81_315, 15_940, 71, 8, "anthropic", plan=plan
    )  # fmt: skip


def test_it_says_why_how_much_what_became_of_the_messages_and_which() -> None:
    event = ended(
        Run(0, 62, "dropped", "old_round"),
        Run(63, 65, "shortened", "oversize"),
        Run(66, 70, "kept", "recent"),
    )
    assert describe_compaction(event) == (
        "over budget: ~81,315 → ~15,940 tokens (63 dropped, 3 shortened); "
        f"#0–#62: {OLD}; #63–#65: {LONG}"
    )


def test_the_reason_of_most_messages_comes_first_and_a_long_list_ends() -> None:
    one = [Run(2 * at, 2 * at, "dropped", "older") for at in range(6)]
    others = [
        Run(20, 30, "dropped", "old_round"),
        Run(31, 32, "shortened", "old_result"),
        Run(33, 33, "shortened", "old_arguments"),
        Run(34, 34, "merged", "duplicate"),
    ]
    said = describe_compaction(ended(*one, *others)).split("; ")
    assert said[0].endswith("(17 dropped, 1 merged, 3 shortened)")
    assert said[1] == f"#20–#30: {OLD}"
    assert said[2] == f"#0, #2, #4, #6 and 2 more ranges: {REASONS['older']}"
    assert said[3].startswith("#31–#32: ")
    assert said[4:] == ["2 messages for other reasons"]


def test_what_was_put_in_is_counted_by_kind() -> None:
    event = ended(Run(0, 62, "summarised", "summary"))
    put = (Insertion("summary", 0), Insertion("system_prompt", 1), Insertion("summary", 2))
    put += (Insertion("notice", 0, at=7),)  # of the compaction at @7, and still there
    assert event.plan is not None
    event = replace(event, plan=replace(event.plan, insertions=put))
    assert "(63 summarised, 2 summaries put in, 1 system prompt put in)" in describe_compaction(
        event
    )


def test_the_count_that_an_imported_file_names_stands_beside_ours() -> None:
    event = ended(Run(0, 70, "summarised", "imported"), trigger="imported")
    assert (
        ": ~81,315 → ~15,940 tokens, 167,094 before by the file's own count (71 summ"
        in describe_compaction(replace(event, tokens_recorded=167_094))
    )


@pytest.mark.parametrize("outcome", ["skipped", "failed", "cancelled"])
def test_one_that_changed_nothing_says_so_and_why(outcome: Outcome) -> None:
    event = ended(outcome=outcome, trigger="manual")
    assert describe_compaction(event) == f"on demand: {outcome} at ~81,315 tokens"
    event = replace(event, error="ValueError: no", fallback="ladder")
    # The status of a failed span has the same words.
    why = "" if outcome == "failed" else ": ValueError: no"
    assert describe_compaction(event).endswith(f" tokens, done by ladder{why}")


def test_another_policy_that_decided_is_named() -> None:
    event = replace(ended(Run(0, 1, "dropped", "older")), fallback="truncate")
    assert "(2 dropped), done by truncate; #0–#1: " in describe_compaction(event)


def test_a_reason_or_a_trigger_that_this_release_does_not_know_stands_as_it_is() -> None:
    event = ended(Run(0, 1, "dropped", "of_tomorrow"))
    event = replace(event, trigger="by moonlight")  # type: ignore[arg-type]
    assert describe_compaction(event).startswith("by moonlight: ")
    assert describe_compaction(event).endswith("#0–#1: of_tomorrow")
