"""Missy's class as its specification has it: each of its sentences, and its worked example."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.adapters.missy import (
    ContextManager,
    ConversationSummary,
    TokenBudget,
    four_characters_a_token,
)
from eventctx.errors import InvalidMessage, InvalidSetting
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tool_rounds import group_rows
from tests.policies.given import Row, examples, model, user
from tests.transcripts import Story, refusal, stories


def build_messages(
    system: str, new: Any, history: Any, *, budget: TokenBudget | None = None, **given: Any
) -> tuple[str, list[Row]]:
    """One call of a manager with this budget; ``estimate`` and ``opening`` are the manager's."""
    options = {name: given.pop(name) for name in ("estimate", "opening") if name in given}
    return ContextManager(budget, **options).build_messages(system, new, history, **given)


def numbered(count: int, tokens: int) -> list[Row]:
    """Messages 1 to ``count``, of so many tokens each at four characters a token."""
    return [(user if n % 2 else model)(f"[{n}]".ljust(tokens * 4)) for n in range(1, count + 1)]


def numbers(messages: list[Row]) -> list[int]:
    return [int(m["content"][1:].split("]")[0]) for m in messages]


def test_the_class_is_made_and_called_as_the_specification_does() -> None:
    shares = {"memory_fraction": 0.20, "learnings_fraction": 0.10}
    budget = TokenBudget(total=50_000, fresh_tail_count=24, **shares)
    manager = ContextManager(budget)
    history = numbered(60, 3_000)
    enriched, messages = manager.build_messages("You are Missy.", "Hello", history)
    assert (enriched, messages[-1]) == ("You are Missy.", user("Hello"))
    assert numbers(messages[:-1]) == list(range(37, 61)), "the last 24, and no more has room"
    by_name = ContextManager().build_messages(system="s", new_message="Hello", history=[])
    assert by_name == ("s", [user("Hello")])
    in_order = manager.build_messages("s", "m", [], ["so", "too"], ["learnt", "it"], None, None)
    memory, learnings = "## Relevant Memory\nso\ntoo", "## Past Learnings\n- learnt\n- it"
    assert in_order[0] == f"s\n\n{memory}\n\n{learnings}"


def test_the_worked_example_of_the_specification() -> None:
    # 16 fresh messages of 700 tokens, then 13 of 738: 20,794 of 20,800 with the new one.
    history = [*numbered(24, 738), *numbered(40, 700)[24:]]
    enriched, messages = build_messages("You are Missy.", "Hello", history)
    assert (enriched, messages[-1]) == ("You are Missy.", user("Hello"))
    assert numbers(messages[:-1]) == list(range(12, 41))
    assert [m is h for m, h in zip(messages, history[11:], strict=False)] == [True] * 29
    tight = TokenBudget(10, 0, 0, 0, 0, 0)  # another estimate may be given
    _, messages = build_messages("", "new", numbered(40, 9), budget=tight, estimate=lambda m: 1)
    assert len(messages) == 10


def test_what_takes_more_than_its_reserve_is_taken_from_the_history() -> None:
    history = numbered(40, 1_000)
    assert len(build_messages("", "new", history)[1]) == 21
    assert len(build_messages("s" * 33_000, "new", history)[1]) == 20
    tools = [{"name": "f", "description": "d" * 16_000}]
    assert len(build_messages("", "new", history, tool_definitions=tools)[1]) == 19
    assert len(build_messages("", "new", history, tool_definitions=[object()])[1]) == 21


@examples
@given(
    story=stories(),
    total=st.sampled_from([0, 50, 300, 2_000, 30_000]),
    tail=st.integers(0, 20),
    memory=st.lists(st.text(max_size=400), max_size=3),
)
def test_any_history_becomes_a_request_that_a_provider_accepts_with_all_that_fits_and_the_tail(
    story: Story, total: int, tail: int, memory: list[str]
) -> None:
    budget = TokenBudget(total, total // 10, total // 10, 0.15, 0.05, tail)
    history, options = story.messages, {"memory_results": memory, "opening": "[…]"}
    enriched, messages = build_messages("s", "new", history, budget=budget, **options)
    assert refusal(messages) is None
    shown = [m for m in messages if m not in (user("new"), user("[…]"))]
    assert all(m in history for m in shown)
    assert [m for m in last(history, tail) if m not in shown] == []
    used = sum(map(four_characters_a_token, messages)) + len(enriched) // 4
    conversation = [m for m in shown if read_facts(m).kind != "system"]
    assert used <= total or all(m in last(history, tail) for m in conversation)


def last(history: list[Row], count: int) -> list[Row]:
    """The messages of the complete rounds that reach into the last ``count`` messages."""
    roomy = TokenBudget(10**9, 0, 0)
    whole = ContextManager(roomy).build_messages("", "", history)[1][:-1]
    places = {id(m): place for place, m in enumerate(history)}
    facts = [read_facts(m) for m in history]
    found: list[Row] = []
    for group in group_rows(facts):
        rows = [history[row] for row in group.rows if any(m is history[row] for m in whole)]
        if any(places[id(m)] >= len(history) - count for m in rows):
            found += rows
    return found


def test_memory_beyond_its_share_is_cut_and_learnings_are_shown_if_all_five_fit() -> None:
    enriched, _ = build_messages("s", "m", [], memory_results=["elephant " * 9_000, "more"])
    text = enriched.removeprefix("s\n\n## Relevant Memory\n")
    assert set(text.split()) == {"elephant", "…"}
    assert 3_890 <= len(text) // 4 <= 3_900
    enriched, _ = build_messages("", "m", [], learnings=[f"lesson {n}" for n in range(9)])
    assert enriched == "## Past Learnings\n" + "\n".join(f"- lesson {n}" for n in range(5))
    fits = ["y" * 1_037] * 5  # with "- " and line ends 5,199 characters: 1,299 tokens
    assert "## Past Learnings" in build_messages("s", "m", [], learnings=fits)[0]
    assert build_messages("s", "m", [], learnings=[*fits[:4], "y" * 1_050])[0] == "s"


def test_summaries_stand_before_the_history_and_one_that_does_not_fit_is_skipped() -> None:
    days = ("2024-01-15", "2024-01-16")
    # One is a record of Missy's own.
    made = SimpleNamespace(content="They met.", depth=1, descendant_count=3, source_turn_ids=["t"])
    made.time_range_start = made.time_range_end = None
    summaries = [
        ConversationSummary("z" * 90_000, 3, 900),
        ConversationSummary("They are setting up Kubernetes.", 2, 45, *days),
        ConversationSummary("Then they wrote tests.", 1, 9, "2024-01-17"),
        made,
    ]
    _, messages = build_messages("", "new", numbered(24, 100), summaries=summaries)
    covers = "depth 2, 45 messages, covers 2024-01-15 to 2024-01-16"
    assert messages[:3] == [
        user(f"[Summary: {covers}]\nThey are setting up Kubernetes."),
        user("[Summary: depth 1, 9 messages]\nThen they wrote tests."),
        user("[Summary: depth 1, 3 messages]\nThey met."),
    ]
    assert numbers(messages[3:-1]) == list(range(1, 25))


def test_a_message_without_a_role_and_a_budget_of_another_class_are_refused() -> None:
    with pytest.raises(InvalidMessage, match="role"):
        build_messages("", "new", [{"content": "who?"}])
    budget: Any
    for budget in (30_000, {"total": 30_000}, SimpleNamespace(total=30_000)):
        with pytest.raises(InvalidSetting, match="budget: expected a TokenBudget"):
            ContextManager(budget)
