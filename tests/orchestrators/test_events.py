"""The events orchestrator: a tool loop in which every step is an event."""

from __future__ import annotations

import eventctx
from eventctx.orchestrators import EventsOrchestrator, Response, Usage
from tests.orchestrators.agents import (
    Scripted,
    activity,
    calls,
    check_log,
    records,
    says,
    tool,
    tools,
)


async def test_a_turn_runs_tools_until_the_model_answers() -> None:
    provider = Scripted(calls(("1", "look")), calls(("2", "look")), says("found"))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        response = await EventsOrchestrator().execute(
            "find it", ctx, {"p": provider}, tools(tool("look", {"at": 3})), turn_id="t1"
        )
        assert response == Response("found", "t1", "answered", 3, Usage(300, 15))
        assert str(response) == "found"
        assert activity(await records(engine)) == [
            "prompt:submit",
            *["provider:request", "provider:response", "tool:pre", "tool:post"] * 2,
            *["provider:request", "provider:response"],
            "prompt:complete",
        ]
        transcript = await ctx.get_messages()
        assert [one["role"] for one in transcript] == [
            *["user", "assistant", "tool", "assistant", "tool", "assistant"]
        ]
        assert transcript[2]["content"] == '{"at": 3}'
        assert provider.requests[2].messages == transcript[:5]
        await check_log(engine)
