"""Which thinking a view holds: by the model that will read it."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from eventctx.errors import InvalidSetting
from eventctx.messages.thinking import Generation, generation_of, reads_thinking_of
from eventctx.testing.strict_provider import violations
from tests.session.given import opened
from tests.sessions import user

MANUAL, ADAPTIVE, PRESERVED = "claude-sonnet-4-5", "claude-opus-4-8", "claude-sonnet-5-5"
LONG = "a long line about nothing in particular\n" * 300


GENERATIONS: dict[Generation, list[str | None]] = {
    "manual": [
        *["claude-3-7-sonnet-20250219", "claude-sonnet-4-20250514", "claude-haiku-4-5@20251001"],
        *["us.anthropic.claude-opus-4-1-20250805-v1:0", "anthropic/claude-sonnet-4.5"],
    ],
    "adaptive": [
        *["claude-opus-4-6", "claude-opus-4-8-20260601", "claude-sonnet-5", "claude-fable-5"]
    ],
    "preserved": ["claude-fable-5-2", "claude-opus-5-5", "claude-haiku-5.5"],
    "unknown": ["claude-opus-9", "gpt-5.2", None],
}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_model_is_of_the_generation_that_its_name_says(generation: Generation) -> None:
    for model in GENERATIONS[generation]:
        assert generation_of(model) == generation, model


def test_a_model_with_a_prefix_check_reads_its_own_thinking_alone() -> None:
    assert reads_thinking_of(PRESERVED, PRESERVED)
    assert reads_thinking_of("claude-opus-4-1", MANUAL)
    assert reads_thinking_of(PRESERVED, "claude-haiku-5-5")
    assert reads_thinking_of(PRESERVED, None)
    assert not reads_thinking_of(PRESERVED, "claude-opus-5-5")
    assert not reads_thinking_of(MANUAL, PRESERVED)


def round_of(number: int, result: str = LONG) -> list[dict[str, Any]]:
    thinking = {"type": "thinking", "thinking": f"page {number}", "signature": "c2lnbmF0dXJl"}
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {"page": number}}
    found = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": result}
    answer = {"role": "assistant", "content": [thinking, call]}
    return [answer, {"role": "user", "content": [found]}]


READ = user("Read ten pages.")


async def looped(
    model: str | None, rounds: int = 6, *, thinks: int = 99, **options: Any
) -> list[list[Any]]:
    """The views of a loop that is compacted again and again, one for each round.

    The model thinks in the first ``thinks`` rounds.
    """
    views = []
    engine, ctx = await opened(READ, max_tokens=6_000, **options)
    for number in range(rounds):
        answer, result = round_of(number)
        if number >= thinks:
            del answer["content"][0]
        await ctx.add_messages([answer, result])
        views.append(await ctx.get_messages_for_request(model=model))
    assert (await engine.audit("s")).compactions
    return views


def is_accepted(view: list[Any]) -> None:
    request = {"model": MANUAL, "thinking": {"type": "enabled"}, "messages": view}
    broken = [one.rule for one in violations("anthropic", request)]
    assert "anthropic/loop-begins-with-thinking" not in broken


def thinking_in(view: list[Any]) -> list[str]:
    return [
        block["thinking"]
        for row in view
        for block in (row["content"] if isinstance(row["content"], list) else ())
        if block["type"] == "thinking"
    ]


@pytest.mark.parametrize("model", [MANUAL, ADAPTIVE, None])
async def test_a_compaction_in_a_loop_leaves_the_last_answer_its_thinking(
    model: str | None,
) -> None:
    for number, view in enumerate(await looped(model)):
        last = [row for row in view if row["role"] == "assistant"][-1]
        assert last["content"][0] == round_of(number)[0]["content"][0]
        is_accepted(view)


@pytest.mark.parametrize("policy", ["workset", "ladder", "truncate", "simple", "token-budget"])
async def test_a_loop_in_which_the_model_thinks_once_keeps_that_thought(policy: str) -> None:
    few = {"keep_recent": 3} if policy in ("truncate", "simple") else {}
    for view in await looped(MANUAL, thinks=1, policy=policy, **few):
        assert thinking_in(view) == ["page 0"]
        is_accepted(view)


async def test_a_loop_that_a_person_spoke_into_keeps_the_thought_that_it_began_with() -> None:
    ask = user("Read on.")
    rows = [ask, *round_of(0), *round_of(1), ask, *round_of(2), *round_of(3)]
    for row in rows[3:]:
        if row["role"] == "assistant":
            del row["content"][0]
    engine, ctx = await opened(*rows, max_tokens=6_000)
    assert thinking_in(await ctx.get_messages_for_request(model=MANUAL)) == ["page 0"]
    assert (await engine.audit("s")).compactions


async def test_a_model_with_a_prefix_check_is_sent_no_thinking_behind_a_change() -> None:
    views = await looped(PRESERVED)
    assert thinking_in(views[0]) == ["page 0"]
    # The views that a compaction made: all others begin as the one before them.
    made = [view for before, view in pairwise(views) if view[:2] != before[:2]]
    compacted = [thinking_in(view) for view in made]
    assert len(compacted) > 1 and not any(compacted)


async def asking(**request: Any) -> list[str]:
    rows = [row for number in range(3) for row in round_of(number)]
    _, ctx = await opened(READ, *rows, max_tokens=6_000)
    return thinking_in(await ctx.get_messages_for_request(**request))


@pytest.mark.parametrize(
    "provider",
    [
        SimpleNamespace(model=PRESERVED),
        SimpleNamespace(default_model=PRESERVED),
        SimpleNamespace(get_info=lambda: SimpleNamespace(defaults={"model": PRESERVED})),
    ],
)
async def test_a_request_that_names_no_model_is_for_the_one_of_its_provider(provider: Any) -> None:
    assert await asking(provider=provider) == []


async def test_what_a_request_says_of_itself_wins_over_the_name_of_its_model() -> None:
    binding = {"prefix_mismatch_behavior": "drop_block"}
    given: list[tuple[Any, list[str]]] = [
        ({"type": "adaptive"}, []),
        ({"type": "enabled", "budget_tokens": 1024}, ["page 1", "page 2"]),
        ({"type": "adaptive", "block_binding": binding}, ["page 1", "page 2"]),
        ("keep", ["page 1", "page 2"]),
    ]
    for thinking, shown in given:
        assert await asking(model=PRESERVED, thinking=thinking) == shown
    with pytest.raises(InvalidSetting, match="thinking: expected"):
        await asking(model=PRESERVED, thinking="perhaps")


async def test_a_change_of_the_model_leaves_out_what_the_next_one_cannot_read() -> None:
    engine, ctx = await opened(READ, *round_of(0, "short"))
    assert thinking_in(await ctx.get_messages_for_request(model=PRESERVED)) == ["page 0"]
    other = await ctx.get_messages_for_request(model="claude-opus-5-5")
    assert thinking_in(other) == []
    await ctx.add_messages(round_of(1, "short"))
    again = await ctx.get_messages_for_request(model="claude-opus-5-5")
    assert thinking_in(again) == ["page 1"]
    rows = (await engine.audit("s")).requests
    assert [row.breaks for row in rows] == [(), ("model",), ()]
    views = [await engine.request_view("s", position=row.position) for row in rows[1:]]
    assert [(view.verified, view.messages) for view in views] == [(True, other), (True, again)]
    why = await engine.why("s", 1)
    assert why.stripped and why.stripped.cause.position == rows[1].position


@pytest.mark.parametrize(
    ("model", "person", "compactions"),
    [(PRESERVED, False, 0), (PRESERVED, True, 1), (MANUAL, False, 1)],
)
async def test_a_compaction_waits_for_the_end_of_a_loop_with_signed_thinking(
    model: str, person: bool, compactions: int
) -> None:
    rows = [row for number in range(2) for row in round_of(number, "word " * 1_800)]
    rows += [{"role": "assistant", "content": "Read."}, user("And?")] if person else []
    limits = {"max_tokens": 10_000, "compact_threshold": 0.5, "target_usage": 0.3}
    engine, ctx = await opened(READ, *rows, **limits)
    await ctx.get_messages_for_request(model=model)
    assert len((await engine.audit("s")).compactions) == compactions
