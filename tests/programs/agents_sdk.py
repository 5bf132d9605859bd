"""A run of the OpenAI Agents SDK whose tool never returns.

``python agents_sdk.py STORE`` prints "ready" when the tool runs and all that was recorded is on
disk, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import eventctx
from eventctx.adapters.openai_agents import AgentsSession

set_tracing_disabled(True)


async def work(store: str) -> None:
    async with eventctx.open(store) as engine:
        session = await AgentsSession.open(engine, "s")

        @function_tool
        async def wait() -> str:
            """Wait for ever."""
            await session.context.close()  # all that was recorded is on disk now
            print("ready", flush=True)
            await asyncio.Event().wait()
            return "never"

        script = [[assistant_message("Ready.")], [function_call("wait", {}, call_id="call_w")]]
        agent = Agent(name="waiter", model=ScriptedModel(script), tools=[wait])
        await Runner.run(agent, "Are you there?", **session.options())
        await Runner.run(agent, "Then wait.", **session.options())


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
