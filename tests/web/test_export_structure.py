"""The structure of a document: no text of it stays, whichever field it stands in."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx.web.export.structure import structure_of

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


async def test_a_structure_keeps_all_numbers_and_whatever_else_is_ours() -> None:
    whole = await document()
    kept = structure_of(whole)
    assert kept["requests"]["digest"] == whole["requests"]["digest"]
    assert kept["reasons"] == whole["reasons"]
    assert [one["strategy"] for one in kept["compactions"]] == ["ladder"] * len(kept["compactions"])
    for name in ("total", "last", "plan"):
        assert kept["requests"][name] == whole["requests"][name]


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
