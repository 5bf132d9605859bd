"""Whatever happened in a session, the request that follows is one that the API takes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings

import eventctx
from eventctx.orchestrators.protocol import Ids, Request
from tests.how_much import some
from tests.orchestrators.providers.kits import ANTHROPIC, CHAT, RESPONSES, Kit
from tests.orchestrators.providers.server import Server, json_reply, serving
from tests.orchestrators.providers.strict import refused
from tests.transcripts import Story, stories

KITS = {"anthropic": ANTHROPIC, "openai": CHAT, "responses": RESPONSES}


async def asked(kit: Kit, story: Story) -> Server:
    """Let a context hold the story, and ask with its view, whole and compacted."""
    async with (
        serving(Server(refused)) as server,
        kit.connect(server.url) as client,
        eventctx.open() as engine,
    ):
        ctx = await engine.session("s")
        for message in story.messages:
            await ctx.add_message(message)
        await ctx.add_message({"role": "user", "content": "And now?"})
        provider = kit.provider(client)
        for budget in (200_000, 3_000):
            server.replies = [json_reply(kit.text)]
            view = await ctx.get_messages_for_request(token_budget=budget)
            await provider.complete(Request(view, Ids("s")))
        return server


@pytest.mark.slow
@pytest.mark.parametrize("dialect", KITS)
def test_a_session_of_any_story_makes_a_request_that_is_taken(dialect: str) -> None:
    @settings(max_examples=some(12, 100), deadline=None)
    @given(stories(dialect))
    def holds(story: Story) -> None:
        server = asyncio.run(asked(KITS[dialect], story))
        assert len(server.requests) == 2

    holds()
