"""Runs of Strands, in a process of another environment: prints their rows as JSON.

``python -m tests.benchmarks.adapting.strands FOLDER quick|full``
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from strands import Agent, Plugin, tool
from strands.agent import NullConversationManager
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, MessageAddedEvent
from strands.middleware import ExecuteToolStage, InvokeModelStage
from strands.models import Model

from eventctx.adapters.strands import EventctxAgentPlugin
from eventctx.engine import Engine
from tests.benchmarks.adapting import print_rows
from tests.benchmarks.adapting.runs import ROUNDS, TEXT, Pair, RunOnce


class Scripted(Model):
    """Calls the tool in each round, and says a text at the end."""

    def get_config(self) -> dict[str, Any]:
        return {"model_id": "scripted"}

    def update_config(self, **config: Any) -> None: ...
    def structured_output(self, *args: Any, **more: Any) -> Any: ...

    async def stream(self, messages: Any, *args: Any, **more: Any) -> AsyncIterator[Any]:
        page = (len(messages) - 1) // 2
        start: Any = {}
        delta: Any = {"text": "All read."}
        if page < ROUNDS:
            start = {"toolUse": {"name": "read", "toolUseId": f"call_{page}"}}
            delta = {"toolUse": {"input": json.dumps({"page": page})}}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if page < ROUNDS else "end_turn"}}


class Empty(Plugin):
    """Has the seams of ours, and does nothing in them."""

    name = "empty"

    def init_agent(self, agent: Agent) -> None:
        async def heard(event: Any) -> None: ...

        async def passed(context: Any, next_fn: Any) -> AsyncIterator[Any]:
            async for event in next_fn(context):
                yield event

        async def replaced(context: Any, next_fn: Any) -> AsyncIterator[Any]:
            async for event in next_fn(context.replace(messages=context.messages)):
                yield event

        for one in (BeforeInvocationEvent, MessageAddedEvent, AfterInvocationEvent):
            agent.add_hook(heard, one)
        agent.add_middleware(InvokeModelStage, replaced)
        agent.add_middleware(ExecuteToolStage, passed)


@tool
async def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: {TEXT}"


def strands() -> Pair:
    def run(*plugins: Plugin) -> RunOnce:
        agent = Agent(
            model=Scripted(),
            system_prompt="Be brief.",
            tools=[read],
            conversation_manager=NullConversationManager(),
            callback_handler=None,
            plugins=list(plugins),
        )
        return partial(agent.invoke_async, "Read all.")

    async def ours(engine: Engine, name: str) -> RunOnce:
        return run(EventctxAgentPlugin(engine, name, max_tokens=10**7))

    return Pair(run, lambda: run(Empty()), ours)


if __name__ == "__main__":
    print_rows(Path(sys.argv[1]), sys.argv[2], "Strands", strands)
