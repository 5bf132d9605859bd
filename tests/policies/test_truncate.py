"""Truncation: the most recent messages or turns stay, in whole rounds."""

from __future__ import annotations

import pytest

import eventctx
from eventctx.policies.policy import PolicyState
from eventctx.policies.presets import Truncate
from tests.policies.given import (
    ROOMY,
    asks,
    decided,
    model,
    staying,
    system,
    tells,
    user,
    view,
)


def test_the_most_recent_messages_stay_with_all_system_messages() -> None:
    rows = [system("s"), user("go"), *(model(f"{n}") for n in range(59))]
    assert staying(decided(Truncate(keep_recent=20), view(*rows))) == [0, 1, *range(41, 61)]
    assert staying(decided(Truncate(), view(*rows))) == [0, 1, *range(11, 61)]


def test_truncating_in_the_middle_of_a_tool_sequence_keeps_the_sequence() -> None:
    rows = [user("go"), model("well"), asks("a", "b"), tells("a"), tells("b"), user("on")]
    proposal = decided(Truncate(keep_recent=2), view(*rows))
    assert staying(proposal) == [0, 2, 3, 4, 5]
    assert proposal.dispositions[2] == ("kept", "same_round")
    assert proposal.dispositions[1] == ("dropped", "older")


def test_pins_and_the_latest_human_message_stay_however_old_they_are() -> None:
    rows = [user("pin"), user("task"), *(model(f"{n}") for n in range(9))]
    proposal = decided(Truncate(keep_recent=2), view(*rows, pins=(0,)))
    assert staying(proposal) == [0, 1, 9, 10]
    assert proposal.dispositions[1] == ("kept", "latest_human")


def test_the_last_turns_stay_however_long_they_are() -> None:
    rows = []
    for turn in range(6):
        rows += [user(f"question {turn}"), asks(f"c{turn}"), tells(f"c{turn}"), model("answer")]
    policy = Truncate(keep_recent=1, keep_turns=3)
    assert staying(decided(policy, view(*rows))) == [0, 4, 8, *range(12, 24)]
    assert staying(decided(Truncate(keep_turns=9), view(*rows))) == list(range(24))


def test_what_stands_before_the_first_human_message_goes_with_the_first_turn() -> None:
    rows = [model("hello"), user("one"), model("1"), user("two")]
    assert staying(decided(Truncate(keep_turns=1), view(*rows))) == [1, 3]
    assert staying(decided(Truncate(keep_turns=2), view(*rows))) == [1, 2, 3]
    assert staying(decided(Truncate(keep_turns=3), view(*rows))) == [0, 1, 2, 3]


@pytest.mark.parametrize("turns", [None, 3])
def test_too_many_messages_are_cut_to_half_of_what_may_be(turns: int | None) -> None:
    rows = [user("go"), *(model(f"{n}") for n in range(60))]
    policy = Truncate(max_messages=50, keep_turns=turns)
    due = PolicyState("max_messages")
    assert staying(decided(policy, view(*rows), ROOMY, due)) == [0, *range(36, 61)]


async def test_a_session_opened_with_it_by_name_shows_the_end_of_the_conversation() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy="truncate", keep_turns=2, max_tokens=2_000)
        for n in range(8):
            await ctx.add_message(user(f"question {n} " + "x" * 800))
            await ctx.add_message(model(f"answer {n}"))
        messages = await ctx.get_messages_for_request()
        assert [m["content"][:10] for m in messages] == [
            *("question 0", "question 6", "answer 6", "question 7", "answer 7")
        ]
        (row,) = (await engine.audit("s")).compactions
        assert (row.strategy, row.outcome, row.fallback) == ("truncate", "applied", None)
        assert len(await ctx.get_messages()) == 16
