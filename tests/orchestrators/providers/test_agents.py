"""The orchestrators on each of the three APIs, against a server that is as strict as they are."""

from __future__ import annotations

from contextlib import aclosing

import eventctx
from eventctx.orchestrators import (
    Chunk,
    EventsOrchestrator,
    StreamingOrchestrator,
)
from eventctx.queries.spans import spans
from tests.orchestrators.agents import Waits, activity, records
from tests.orchestrators.providers.conftest import Connect
from tests.orchestrators.providers.kits import ANTHROPIC, Kit
from tests.orchestrators.providers.server import Server, json_reply, streamed

KNOWN = ("server.address", "server.port", "gen_ai.request.max_tokens", "gen_ai.request.stream")
THOUGHT = {"type": "thinking", "thinking": "Read it first.", "signature": "sig+/=="}


def read(path: str) -> str:
    """Reads a file."""
    return f"contents of {path}"


async def test_an_agent_runs_on_each_api(kit: Kit, connect: Connect, server: Server) -> None:
    server.replies = [json_reply(kit.call), json_reply(kit.text), json_reply(kit.text)]
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        agent = EventsOrchestrator(sleep=Waits())
        providers = {kit.name: connect(kit)}
        response = await agent.execute("Is it fair?", ctx, providers, [read])
        assert response.text == "Fair enough."
        assert response.iterations == 2
        assert "contents of a.py" in str(server.requests[1].body)
        assert (await agent.execute("Sure?", ctx, providers, [read])).text == "Fair enough."
        await ctx.close()
        assert (await engine.verify("s")).problems == ()
        assert activity(await records(engine)).count("tool:post") == 1


async def test_thinking_goes_back_with_its_signature(connect: Connect, server: Server) -> None:
    thoughtful = {**ANTHROPIC.call, "content": [THOUGHT, *ANTHROPIC.call["content"]]}
    server.replies = [json_reply(thoughtful), json_reply(ANTHROPIC.text)]
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        agent = EventsOrchestrator(sleep=Waits())
        thinking = {"type": "enabled", "budget_tokens": 1_024}  # so the API asks for it
        provider = connect(ANTHROPIC, thinking=thinking)
        await agent.execute("Is it fair?", ctx, {"p": provider}, [read])
    assert server.requests[1].body["messages"][1]["content"][0] == THOUGHT


async def test_each_api_is_streamed_to_the_reader(
    kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [streamed(kit.text_events), json_reply(kit.text)]
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        stream = StreamingOrchestrator().stream("Is it fair?", ctx, {"p": connect(kit)})
        async with aclosing(stream) as pieces:
            found = [piece async for piece in pieces]
        texts = [one.text for one in found if isinstance(one, Chunk) and one.kind == "text"]
        assert texts == ["Fair", " enough."]
        assert str(found[-1]) == "Fair enough."
        agent = EventsOrchestrator(sleep=Waits())
        assert (await agent.execute("Sure?", ctx, {"p": connect(kit)})).text == "Fair enough."
        assert server.requests[1].body != server.requests[0].body
        chats = [
            {name: value for name, value in one.attributes.items() if name in KNOWN}
            async for one in spans(engine.store, "s")
            if one.name.startswith("chat ")
        ]
    known = dict(zip(KNOWN, ("127.0.0.1", int(server.url.rpartition(":")[2])), strict=False))
    if kit is ANTHROPIC:
        known["gen_ai.request.max_tokens"] = 8_192
    assert chats == [known | {"gen_ai.request.stream": True}, known]
