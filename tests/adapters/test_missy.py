"""Missy's class as its specification has it: each of its sentences, and its worked example."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
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
from tests.policies.given import Row, asks, examples, model, system, tells, user
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
    budget = TokenBudget(
        total=50_000, memory_fraction=0.20, learnings_fraction=0.10, fresh_tail_count=24
    )
    manager = ContextManager(budget)
    history = numbered(60, 3_000)
    enriched, messages = manager.build_messages("You are Missy.", "Hello", history)
    assert (enriched, messages[-1]) == ("You are Missy.", user("Hello"))
    assert numbers(messages[:-1]) == list(range(37, 61)), "the last 24, and no more has room"
    by_name = ContextManager().build_messages(system="s", new_message="Hello", history=[])
    assert by_name == ("s", [user("Hello")])
    in_order = manager.build_messages("s", "m", [], ["recalled"], ["learnt"], None, None)
    assert in_order[0] == "s\n\n## Relevant Memory\nrecalled\n\n## Past Learnings\n- learnt"


@pytest.mark.parametrize("budget", [30_000, {"total": 30_000}, SimpleNamespace(total=30_000)])
def test_a_budget_of_another_class_is_refused(budget: Any) -> None:
    with pytest.raises(InvalidSetting, match="budget: expected a TokenBudget"):
        ContextManager(budget)


def test_tokens_are_counted_at_four_characters_each() -> None:
    assert four_characters_a_token(user("x" * 400)) == 100
    assert four_characters_a_token(user("")) == 1


def test_the_worked_example_of_the_specification() -> None:
    # 16 fresh messages of 700 tokens, then 13 of 738: 20,794 of 20,800 with the new one.
    history = [*numbered(24, 738), *numbered(40, 700)[24:]]
    enriched, messages = build_messages("You are Missy.", "Hello", history)
    assert enriched == "You are Missy."
    assert numbers(messages[:-1]) == list(range(12, 41))
    assert messages[-1] == user("Hello")
    assert [m is h for m, h in zip(messages, history[11:], strict=False)] == [True] * 29


def test_older_messages_are_filled_in_newest_first_until_the_first_that_does_not_fit() -> None:
    history = numbered(24, 100)
    history[5] = user("[6]".ljust(4 * 60_000))
    _, messages = build_messages("", "new", history)
    assert numbers(messages[:-1]) == list(range(7, 25))


def test_the_fresh_tail_counts_messages_and_may_be_none() -> None:
    small = TokenBudget(1_000, 0, 0, 0, 0, 3)
    assert numbers(build_messages("", "new", numbered(9, 300), budget=small)[1][:-1]) == [7, 8, 9]
    none = msgspec.structs.replace(small, fresh_tail_count=0)
    assert numbers(build_messages("", "new", numbered(9, 400), budget=none)[1][:-1]) == [8, 9]


def test_the_fresh_tail_is_always_included_regardless_of_budget() -> None:
    history = [*numbered(8, 10), *numbered(24, 20_000)[8:]]
    summary = ConversationSummary("Then they wrote tests.", 1, 9)
    _, messages = build_messages("", "new", history, summaries=[summary])
    assert numbers(messages[:-1]) == list(range(9, 25)), "and nothing else has room"
    assert messages[-1] == user("new")
    nothing = TokenBudget(0, 0, 0)
    assert numbers(build_messages("", "new", history, budget=nothing)[1][:-1]) == [*range(9, 25)]


def test_the_new_message_stays_whatever_its_size() -> None:
    history = numbered(20, 10)
    _, messages = build_messages("", "x" * 400_000, history)
    assert messages == [*history[4:], user("x" * 400_000)]
    _, messages = build_messages("", {"role": "user", "content": [{"type": "text"}]}, [])
    assert messages == [{"role": "user", "content": [{"type": "text"}]}]


def test_memory_and_learnings_enrich_the_system_prompt() -> None:
    enriched, _ = build_messages(
        "You are Missy.",
        "Hello",
        [],
        memory_results=[
            "User previously asked about deploying to Kubernetes.",
            "Last session covered Python asyncio patterns.",
        ],
        learnings=[
            "When editing Python files, always run ruff check after changes",
            "User prefers YAML configs over JSON",
            "The workspace uses pytest with coverage threshold 85%",
        ],
    )
    assert enriched == (
        "You are Missy.\n\n"
        "## Relevant Memory\n"
        "User previously asked about deploying to Kubernetes.\n"
        "Last session covered Python asyncio patterns.\n\n"
        "## Past Learnings\n"
        "- When editing Python files, always run ruff check after changes\n"
        "- User prefers YAML configs over JSON\n"
        "- The workspace uses pytest with coverage threshold 85%"
    )


def test_memory_beyond_its_share_is_cut_after_a_word() -> None:
    enriched, _ = build_messages("s", "m", [], memory_results=["elephant " * 9_000, "more"])
    text = enriched.removeprefix("s\n\n## Relevant Memory\n")
    assert set(text.split()) == {"elephant", "…"}
    assert 3_890 <= len(text) // 4 <= 3_900


def test_memory_of_which_no_word_fits_has_no_section() -> None:
    for memory in (["x" * 60_000], [], [""], [" \n "]):
        assert build_messages("s", "m", [], memory_results=memory)[0] == "s"


def test_at_most_five_learnings_are_shown_and_only_if_all_of_them_fit() -> None:
    enriched, _ = build_messages("", "m", [], learnings=[f"lesson {n}" for n in range(9)])
    assert enriched == "## Past Learnings\n" + "\n".join(f"- lesson {n}" for n in range(5))
    fits = ["y" * 1_037] * 5  # with "- " and line ends 5,199 characters: 1,299 tokens
    assert "## Past Learnings" in build_messages("s", "m", [], learnings=fits)[0]
    assert build_messages("s", "m", [], learnings=[*fits[:4], "y" * 1_050])[0] == "s"


def test_summaries_stand_before_the_history_and_one_that_does_not_fit_is_skipped() -> None:
    summaries = [
        ConversationSummary("z" * 90_000, 3, 900),
        ConversationSummary(
            "The user worked on setting up a Kubernetes deployment...",
            2,
            45,
            "2024-01-15",
            "2024-01-16",
        ),
        ConversationSummary("Then they wrote tests.", 1, 9, "2024-01-17"),
    ]
    _, messages = build_messages("", "new", numbered(24, 100), summaries=summaries)
    assert messages[0] == user(
        "[Summary: depth 2, 45 messages, covers 2024-01-15 to 2024-01-16]\n"
        "The user worked on setting up a Kubernetes deployment..."
    )
    assert messages[1] == user("[Summary: depth 1, 9 messages]\nThen they wrote tests.")
    assert numbers(messages[2:-1]) == list(range(1, 25))


def test_a_record_of_missys_own_is_a_summary() -> None:
    record = SimpleNamespace(
        content="They met.",
        depth=1,
        descendant_count=3,
        time_range_start=None,
        time_range_end=None,
        source_turn_ids=["t1"],
    )
    _, messages = build_messages("", "new", [], summaries=[record])
    assert messages[0] == user("[Summary: depth 1, 3 messages]\nThey met.")


def test_summaries_take_their_room_before_older_messages_do() -> None:
    history = [*numbered(24, 738), *numbered(40, 700)[24:]]
    summary = ConversationSummary("s" * 4 * 730, 1, 11)
    _, messages = build_messages("", "Hello", history, summaries=[summary])
    assert numbers(messages[1:-1]) == list(range(13, 41))


def test_a_tool_round_stands_or_falls_as_one() -> None:
    history = [user("go"), asks("a"), tells("a", 400), *(model(f"{n}") for n in range(16))]
    _, messages = build_messages("", "new", history)
    assert messages == [*history, user("new")]
    tail = TokenBudget(fresh_tail_count=17)
    assert build_messages("", "new", history, budget=tail)[1] == [*history, user("new")]
    tight = TokenBudget(250, 0, 0, 0, 0, 17)
    assert build_messages("", "new", history, budget=tight)[1] == [*history, user("new")]
    without = TokenBudget(100, 0, 0, 0, 0, 16)
    assert build_messages("", "new", history, budget=without)[1] == [*history[3:], user("new")]


def test_a_tail_that_begins_within_a_tool_round_has_all_of_it() -> None:
    history = [user("go"), asks("a", "b"), tells("a", 9_000), tells("b", 9_000), model("done")]
    tail = TokenBudget(1_000, 0, 0, 0, 0, 2)
    assert build_messages("", "new", history, budget=tail)[1] == [*history[1:], user("new")]


def test_what_no_provider_takes_is_left_out() -> None:
    history = [tells("nowhere"), user("go"), asks("a", "b"), tells("a"), asks("c"), tells("c")]
    history += [tells("c"), asks("d")]
    _, messages = build_messages("", "new", history)
    assert messages == [user("go"), asks("c"), tells("c"), user("new")]


def test_results_follow_their_call_directly() -> None:
    between = user("<system-reminder>hook</system-reminder>")
    _, messages = build_messages("", "new", [user("go"), asks("a"), between, tells("a")])
    assert messages == [user("go"), asks("a"), tells("a"), between, user("new")]


def test_contents_come_out_as_they_went_in() -> None:
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "source": {"data": "aGk="}}]
    history: list[Row] = [
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": None},
    ]
    _, messages = build_messages("", "new", history)
    assert messages[0]["content"] is blocks
    assert messages[1] == {"role": "assistant", "content": None}


def test_system_messages_in_the_history_stay() -> None:
    history = [system("be careful"), *numbered(40, 3_000)]
    _, messages = build_messages("", "new", history)
    assert messages[0] == system("be careful")
    assert numbers(messages[1:-1]) == list(range(25, 41))


def test_what_takes_more_than_its_reserve_is_taken_from_the_history() -> None:
    history = numbered(40, 1_000)
    assert len(build_messages("", "new", history)[1]) == 21
    assert len(build_messages("s" * 33_000, "new", history)[1]) == 20
    tools = [{"name": "f", "description": "d" * 16_000}]
    assert len(build_messages("", "new", history, tool_definitions=tools)[1]) == 19
    assert len(build_messages("", "new", history, tool_definitions=[object()])[1]) == 21


def test_another_estimate_may_be_given() -> None:
    tight = TokenBudget(10, 0, 0, 0, 0, 0)
    _, messages = build_messages("", "new", numbered(40, 9), budget=tight, estimate=lambda m: 1)
    assert len(messages) == 10


def test_an_opening_stands_before_a_conversation_that_would_not_begin_with_the_user() -> None:
    tail = TokenBudget(20, 0, 0, 0, 0, 0)
    history = [system("s"), user("x" * 100), model("y")]
    assert build_messages("", "new", history, budget=tail)[1][1] == model("y")
    _, messages = build_messages("", "new", history, budget=tail, opening="[It goes on.]")
    assert messages == [system("s"), user("[It goes on.]"), model("y"), user("new")]
    assert build_messages("", "new", [], opening="[It goes on.]")[1] == [user("new")]


def test_a_message_without_a_role_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="role"):
        build_messages("", "new", [{"content": "who?"}])


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
    history = story.messages
    enriched, messages = build_messages(
        "s", "new", history, budget=budget, memory_results=memory, opening="[…]"
    )
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
