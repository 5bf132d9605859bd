"""Requests that two runs of one conversation prepare at the same time, for the call of one host."""

from __future__ import annotations

import asyncio
from pathlib import Path

from eventctx.engine import open_engine
from eventctx.session.host_requests import ObservedRequest
from tests.sessions import USER


async def test_one_of_two_requests_at_once_begins_the_call_and_both_return(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "log.db") as engine:
        ctx = await engine.session("s")
        host = ctx.following()
        await ctx.add_message(USER)
        await host.turn_began()
        await host.iteration_began()
        both = [ctx.get_messages_for_request(call=host) for _ in range(2)]
        assert await asyncio.wait_for(asyncio.gather(*both), 60) == [[USER], [USER]]
        await host.model_answered()
        await host.turn_ended()
        await ctx.close()
        made = [one.type async for one in engine.records("s")]
        assert made.count("context:request_prepared") == 2
        assert made.count("provider:request") == made.count("provider:response") == 1


async def test_one_of_two_requests_that_the_program_made_begins_the_call(
    tmp_path: Path,
) -> None:
    async with open_engine(tmp_path / "log.db") as engine:
        ctx = await engine.session("s")
        host = ctx.following()
        await ctx.add_message(USER)
        await host.turn_began()
        await host.iteration_began()
        own = ObservedRequest("openai-chat-1", [USER])
        both = [ctx.observe_request(own, call=host) for _ in range(2)]
        assert len(set(await asyncio.wait_for(asyncio.gather(*both), 60))) == 2
        await host.turn_ended()
        await ctx.close()
        made = [one.type async for one in engine.records("s")]
        assert made.count("context:request_prepared") == 2
        assert made.count("provider:request") == 1


async def test_a_call_may_end_while_its_beginning_goes_to_the_disk(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "log.db") as engine:
        ctx = await engine.session("s")
        host = ctx.following()
        await ctx.add_message(USER)
        await host.turn_began()
        await host.iteration_began()

        async def another_run() -> None:
            await host.iteration_began()
            await ctx.get_messages_for_request(call=host)

        both = (ctx.get_messages_for_request(call=host), another_run())
        await asyncio.wait_for(asyncio.gather(*both), 60)
        await host.turn_ended()
        await ctx.close()
        made = [one.type async for one in engine.records("s")]
        assert made.count("provider:request") == 2
        ended = made.count("provider:response") + made.count("provider:error")
        assert ended == 2
