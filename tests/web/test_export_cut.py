"""A document cut to some turns: what lies behind them is not in it, what is in it still fits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import eventctx
from eventctx.web.export.cut import cut_to_turns

MODELS = ["claude-sonnet-4-5", "claude-sonnet-4-5", "gpt-5", "gpt-5", "claude-sonnet-4-5"]


@pytest.fixture
async def whole() -> AsyncIterator[dict[str, Any]]:
    """Five turns with a subagent each, compactions, and three changes of the model's family."""
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session("s", max_tokens=1_600, policy="ladder")
        for number, model in enumerate(MODELS):
            async with ctx.turn() as turn:
                await ctx.add_message({"role": "user", "content": f"Look at {number}. " * 120})
                for place in range(2):
                    async with turn.iteration() as iteration:
                        await ctx.get_messages_for_request()
                        async with iteration.provider_call(model) as call:
                            await call.usage(900, 20)
                    name = f"call-{number}-{place}"
                    use = {"type": "tool_use", "id": name, "name": "look", "input": {}}
                    await ctx.add_message({"role": "assistant", "content": [use]})
                    result = {"type": "tool_result", "tool_use_id": name, "content": "seen " * 200}
                    await ctx.add_message({"role": "user", "content": [result]})
            child = await engine.session(f"child-{number}")
            await child.add_message({"role": "user", "content": "Go on."})
            await engine.link("s", f"child-{number}", call_id=f"call-{number}-0")
        yield await engine.timeline("s")


async def test_nothing_of_later_turns_is_in_a_cut(whole: dict[str, Any]) -> None:
    cut, held = cut_to_turns(whole, 2, 2)
    end = whole["turns"][1]["last"]
    later = whole["turns"][2]["first"]
    assert [one["number"] for one in cut["turns"]] == [1, 2]
    assert [one["session"] for one in cut["links"]] == ["child-0"]
    assert set(cut["calls"]) == {"call-0-0", "call-1-0"} & set(whole["calls"])
    for table in ("messages", "requests", "changes"):
        assert max(cut[table]["position"]) <= end
        assert max(whole[table]["position"]) > later
    assert [one["position"] for one in cut["compactions"]] == [
        one["position"] for one in whole["compactions"] if one["position"] <= end
    ]
    assert len(cut["compactions"]) < len(whole["compactions"])
    assert len(cut["extras"]) < len(whole["extras"])
    assert max(held.numbers) == len(cut["messages"]["position"]) - 1


async def test_a_loss_that_is_suspected_later_is_not_in_a_cut(whole: dict[str, Any]) -> None:
    losses = [
        {"position": turn["last"] - 1, "kind": "prompt", "tokens": 2_000, "words": "…"}
        for turn in whole["turns"]
    ]
    cut, _ = cut_to_turns({**whole, "losses": losses}, 2, 2)
    assert cut["losses"] == losses[:2]


async def test_the_messages_of_a_turn_are_in_its_cut_behind_its_last_request_too(
    whole: dict[str, Any],
) -> None:
    cut, held = cut_to_turns(whole, 3, 3)
    own = [number for number, turn in enumerate(whole["messages"]["turn"]) if turn == 3]
    assert own[-1] > cut["requests"]["last"][-1]
    assert set(own) <= held.numbers


async def test_messages_count_anew_from_the_same_request_on(whole: dict[str, Any]) -> None:
    cut, _ = cut_to_turns(whole, 2, 5)
    assert len(whole["recounts"]) >= 3
    for before, now in zip(whole["recounts"], cut["recounts"], strict=True):
        wanted = whole["requests"]["position"][before["from"]]
        behind = [one for one in cut["requests"]["position"] if one >= wanted]
        assert cut["requests"]["position"][now["from"] :] == behind
        assert len(now["tokens"]) <= len(cut["messages"]["position"])


async def test_a_cut_shows_the_views_of_its_requests(whole: dict[str, Any]) -> None:
    everything, _ = cut_to_turns(whole, 1, 5)
    assert everything["requests"]["digest"] == whole["requests"]["digest"]
    assert everything["requests"]["keep"] == whole["requests"]["keep"]
    added = [list(one) for one in whole["requests"]["add"]]
    assert everything["requests"]["add"] == added
