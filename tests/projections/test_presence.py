"""A presence, a reason and a compaction in words are true, whoever decided and whatever it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.log.events import Outcome, PostCompact, Trigger
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.messages.facts import Facts, as_observation
from eventctx.messages.facts_reader import read_facts
from eventctx.policies.fit import fit
from eventctx.policies.ladder import Ladder
from eventctx.policies.named import Custom
from eventctx.policies.policy import Policy, PolicyState
from eventctx.policies.presets import Importance, Simple, Truncate
from eventctx.policies.proposals import keep_only
from eventctx.policies.summarize import Summarize
from eventctx.policies.token_budget import TokenBudgetPolicy
from eventctx.policies.workset import Workset
from eventctx.projections.presence import REASONS, Presence, describe_reason
from eventctx.projections.trace.compaction import describe_compaction
from eventctx.testing.policies import Answers, decide
from tests.policies.given import (
    DUE,
    MANUAL,
    Row,
    asks,
    budget_of,
    examples,
    model,
    system,
    tells,
    user,
    view,
)
from tests.transcripts import Story, stories

REMINDER = {"role": "user", "content": "<system-reminder>be quick</system-reminder>" + " " * 900}


def sentences(
    rows: list[Row], policy: Policy, tokens: int, state: PolicyState
) -> list[tuple[Facts, str, bool]]:
    """The facts of each message with what is said of it, and whether it is in a tool round."""
    visible, budget = view(*rows), budget_of(tokens)
    answers = Answers("all went well", 0.5, ("the port is 8080",), rows)
    proposal = fit(visible, decide(policy, visible, budget, state, answers), budget).proposal
    with_tools = {
        row
        for group in visible.groups
        if group.orphan or group.results or group.pending
        for row in group.rows
    }
    reasons = [proposal.dispositions[ref.number][1] for ref in visible.messages]
    return [
        (ref.facts, describe_reason(reason, ref.facts), row in with_tools)
        for row, (ref, reason) in enumerate(zip(visible.messages, reasons, strict=True))
    ]


POLICIES: list[Policy] = [
    Ladder(),
    Ladder(protected_recent=0.0, protected_tool_results=0, truncate_chars=50),
    Simple(),
    Truncate(),
    Importance(),
    Summarize(),
    TokenBudgetPolicy(),
    Workset(),
    Custom(lambda seen, budget, state: keep_only(seen, [ref.number for ref in seen.messages[-2:]])),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
@examples
@given(
    story=stories(),
    extra=st.lists(st.integers(0, 12), max_size=3),
    tokens=st.sampled_from([1, 300, 1_200, 4_000, 20_000]),
    state=st.sampled_from([DUE, MANUAL]),
)
def test_no_policy_makes_a_sentence_speak_of_what_a_message_is_not(
    policy: Policy, story: Story, extra: list[int], tokens: int, state: PolicyState
) -> None:
    rows: list[Row] = list(story.messages)
    for place in extra:
        rows.insert(min(place, len(rows)), REMINDER)
    for facts, sentence, in_round in sentences(rows, policy, tokens, state):
        assert sentence
        assert "tool round" not in sentence or in_round, (facts, sentence)
        assert "tool result" not in sentence or facts.results, (facts, sentence)
        of_a_person = "user message" in sentence or "human message" in sentence
        assert not of_a_person or facts.human, (facts, sentence)
        assert "of the model" not in sentence or facts.kind == "assistant", (facts, sentence)


FACTS = {
    "call": read_facts(asks("a")),
    "result": read_facts(tells("a")),
    "answer": read_facts(model("done")),
    "person": read_facts(user("go on")),
    "harness": read_facts(REMINDER),
    "observation": as_observation(read_facts(user("exit code 0"))),
    "system": read_facts(system("be brief")),
}


DROPPED = "dropped to reach the target"
SENTENCES = [
    ("old_round", "call result", f"an old tool round, {DROPPED}"),
    ("old_round", "answer", f"an old message of the model, {DROPPED}"),
    ("old_round", "harness", f"an old message of role user that is no person's, {DROPPED}"),
    ("old_round", "observation", f"an old observation of an action, {DROPPED}"),
    ("old_round", "call answer", REASONS["old_round"]),
    ("old_round", "", REASONS["old_round"]),
    ("old_words", "person", "an old user message, cut or dropped to reach the target"),
    ("old_words", "person call", REASONS["old_words"]),
    ("budget", "person call", "to fit the budget"),
    ("of a later release", "person", ""),
]


@pytest.mark.parametrize(("reason", "kinds", "sentence"), SENTENCES)
def test_a_run_of_messages_of_one_kind_is_named_by_it_and_a_mixed_one_by_none(
    reason: str, kinds: str, sentence: str
) -> None:
    assert describe_reason(reason, *[FACTS[kind] for kind in kinds.split()]) == sentence


def test_every_code_and_presence_has_words_that_say_whether_the_message_is_in_view() -> None:
    assert all(describe_reason(reason, facts) for reason in REASONS for facts in FACTS.values())
    for presence in Presence:
        assert presence.short
        assert presence.sentence.startswith("in view" if presence.in_view else "not in view")
        assert repr([presence]) == f"['{presence.value}']"


# -- a compaction in one sentence ------------------------------------------------------------------


OLD, LONG = REASONS["old_round"], REASONS["oversize"]


def ended(*runs: Run, outcome: Outcome = "applied", trigger: Trigger = "budget") -> PostCompact:
    plan = Plan(70, runs) if outcome == "applied" else None
    sizes = (81_315, 15_940, 71, 8)
    return PostCompact(outcome, trigger, "ladder", 1, *sizes, "anthropic", plan=plan)


def test_it_says_why_how_much_what_became_of_the_messages_and_which() -> None:
    runs = [Run(0, 62, "dropped", "old_round"), Run(63, 65, "shortened", "oversize")]
    assert describe_compaction(ended(*runs, Run(66, 70, "kept", "recent"))) == (
        "over budget: ~81,315 → ~15,940 tokens (63 dropped, 3 shortened); "
        f"#0–#62: {OLD}; #63–#65: {LONG}"
    )


def test_the_reason_of_most_messages_comes_first_and_a_long_list_ends() -> None:
    one = [Run(2 * at, 2 * at, "dropped", "older") for at in range(6)]
    others = [Run(20, 30, "dropped", "old_round"), Run(31, 32, "shortened", "old_result")]
    others += [Run(33, 33, "shortened", "old_arguments"), Run(34, 34, "merged", "duplicate")]
    said = describe_compaction(ended(*one, *others)).split("; ")
    assert said[0].endswith("(17 dropped, 1 merged, 3 shortened)")
    assert said[1] == f"#20–#30: {OLD}"
    assert said[2] == f"#0, #2, #4, #6 and 2 more ranges: {REASONS['older']}"
    assert said[3].startswith("#31–#32: ")
    assert said[4:] == ["2 messages for other reasons"]


SUMMED_UP = Run(0, 62, "summarised", "summary")
PUT_IN = (
    *[Insertion("summary", 0), Insertion("system_prompt", 1), Insertion("summary", 2)],
    Insertion("notice", 0, at=7),  # of the compaction at @7, and still there
)
IMPORTED = ended(Run(0, 70, "summarised", "imported"), trigger="imported")
TWO = ended(Run(0, 1, "dropped", "older"))
UNKNOWN: Any = "by moonlight"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            replace(TWO, plan=Plan(70, (SUMMED_UP,), insertions=PUT_IN)),
            "(63 summarised, 2 summaries put in, 1 system prompt put in)",
        ),
        (
            replace(IMPORTED, tokens_recorded=167_094),
            ": ~81,315 → ~15,940 tokens, 167,094 before by the file's own count (71 summ",
        ),
        (replace(TWO, fallback="truncate"), "(2 dropped), done by truncate; #0–#1: "),
        # What this release does not know stands as it is.
        (ended(Run(0, 1, "dropped", "of_tomorrow")), "#0–#1: of_tomorrow"),
        (replace(TWO, trigger=UNKNOWN), "by moonlight: "),
    ],
)
def test_it_counts_what_was_put_in_and_names_who_else_decided(
    event: PostCompact, said: str
) -> None:
    assert said in describe_compaction(event)


@pytest.mark.parametrize("outcome", ["skipped", "failed", "cancelled"])
def test_one_that_changed_nothing_says_so_and_why(outcome: Outcome) -> None:
    event = ended(outcome=outcome, trigger="manual")
    assert describe_compaction(event) == f"on demand: {outcome} at ~81,315 tokens"
    event = replace(event, error="ValueError: no", fallback="ladder")
    # The status of a failed span has the same words.
    why = "" if outcome == "failed" else ": ValueError: no"
    assert describe_compaction(event).endswith(f" tokens, done by ladder{why}")
