"""Our orchestrators with the SDKs' providers and with functions as tools, on local servers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

import eventctx
from eventctx.orchestrators import Answer, EventsOrchestrator, Ids, ToolRequest, tool
from eventctx.testing import Reply, ScriptedProvider


async def test_plain_functions_are_tools_and_get_the_ids_of_their_call() -> None:
    seen: list[Ids] = []

    def add(a: int, b: Annotated[int, msgspec.Meta(description="the second")] = 1) -> int:
        """Add two numbers."""
        return a + b

    @tool(name="where")
    async def place(ids: Ids) -> str:
        """Say where we are."""
        seen.append(ids)
        return "here"

    provider = ScriptedProvider(
        Reply(calls=[("add", {"a": 2, "b": 3}), ("where", {}), ("add", {"a": "two"})]), "Done."
    )
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        response = await EventsOrchestrator().execute("Add.", ctx, {"p": provider}, [add, place])
        assert str(response) == "Done."
        rows = await ctx.get_messages()
        records = [record async for record in engine.records("s")]
    (ids,) = seen
    began = next(one for one in records if one.type == "tool:pre" and one.span_id == ids.span_id)
    assert (ids.session_id, ids.turn_id, ids.iteration) == ("s", began.turn_id, 1)
    assert ids.parent_span_id == began.parent_span_id
    results = [str(row["content"]) for row in rows[2:5]]
    assert any("5" in one for one in results)
    assert any("here" in one for one in results)
    assert any("arguments of add" in one for one in results)
    failed = [one.type for one in records].count("tool:error")
    assert failed == 1


async def test_an_answer_of_several_items_is_added_whole_and_in_order() -> None:
    class Items:
        """Answers as the Responses API does: thinking, words and a call are items of their own."""

        name, model = "items", "items-1"

        def __init__(self) -> None:
            self.asked: list[list[dict[str, Any]]] = []

        async def complete(self, request: Any) -> Answer:
            self.asked.append(list(request.messages))
            if len(self.asked) == 1:
                thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}
                call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
                return Answer(thought, calls=(ToolRequest("c", "look", {}),), more=(call,))
            said = {"type": "message", "role": "assistant", "content": "Seen."}
            return Answer(said, "Seen.")

        def definitions(self, tools: Any) -> list[dict[str, Any]]:
            return [{"type": "function", "name": one.name} for one in tools]

        def result_message(self, outcome: Any) -> dict[str, Any]:
            output = {"type": "function_call_output", "call_id": outcome.call.id}
            return {**output, "output": outcome.content}

    def look() -> str:
        """Look."""
        return "a tree"

    provider = Items()
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        response = await EventsOrchestrator().execute("Look.", ctx, {"p": provider}, [look])
        assert str(response) == "Seen."
        kinds = [row.get("type", row.get("role")) for row in await ctx.get_messages()]
    assert kinds == ["user", "reasoning", "function_call", "function_call_output", "message"]
    assert [row.get("type") for row in provider.asked[1]][1:] == kinds[1:4]
