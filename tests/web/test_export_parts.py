"""A document cut to some turns or to its structure: what lies behind is not in it, and no text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import eventctx
from eventctx.web.export.cut import cut_to_turns
from eventctx.web.export.structure import structure_of

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


async def test_messages_count_anew_from_the_same_request_on(whole: dict[str, Any]) -> None:
    cut, _ = cut_to_turns(whole, 2, 5)
    assert len(whole["recounts"]) >= 3
    for before, now in zip(whole["recounts"], cut["recounts"], strict=True):
        wanted = whole["requests"]["position"][before["from"]]
        behind = [one for one in cut["requests"]["position"] if one >= wanted]
        assert cut["requests"]["position"][now["from"] :] == behind
        assert len(now["tokens"]) <= len(cut["messages"]["position"])


WORD = "Strawberry"


async def document() -> dict[str, Any]:
    """A session with compactions, and with a value in every field that may hold a text."""
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session("s", max_tokens=1_200, policy="ladder")
        for number in range(8):
            async with ctx.turn():
                await ctx.add_message({"role": "user", "content": f"Look at {number}. " * 120})
                await ctx.get_messages_for_request()
                name = f"call-{number}"
                use = {"type": "tool_use", "id": name, "name": "look", "input": {}}
                await ctx.add_message({"role": "assistant", "content": [use]})
        found = await engine.timeline("s")
    link = {"position": 9, "session": "x", "relation": "child", "kind": "x", "call_id": "x"}
    found |= {"parent": {"session": "x", "at": 3}, "mirror": "x", "links": [link], "models": ["x"]}
    found["compactions"][0] |= {"error": "x", "fallback": "x", "requested_by": "x"}
    found["extras"].append({**found["extras"][0], "name": "x", "call": "x", "omit": ["x"]})
    return found


def worded(value: Any) -> Any:
    """The value with another word for every text in it, in keys of calls too."""
    if isinstance(value, str):
        return WORD
    if isinstance(value, dict):
        return {name: worded(one) for name, one in value.items()}
    return [worded(one) for one in value] if isinstance(value, list | tuple) else value


async def test_a_structure_has_no_text_of_any_field() -> None:
    whole = worded(await document())
    whole["calls"] = {WORD: 1}
    assert repr(whole).count(WORD) > 50
    assert WORD not in repr(structure_of(whole))


async def test_one_name_is_one_name_everywhere_in_a_structure() -> None:
    whole = await document()
    kept = structure_of(whole)
    assert kept["links"][0]["session"] == kept["parent"]["session"]
    last = kept["extras"][-1]
    assert last["omit"] == [last["call"]]


async def test_a_field_of_numbers_that_holds_a_text_is_refused() -> None:
    whole = await document()
    whole["messages"]["tokens"][0] = WORD
    with pytest.raises(TypeError, match="tokens: expected numbers"):
        structure_of(whole)
