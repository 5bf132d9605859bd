"""Agents of Microsoft Agent Framework on a script, and what the log says of their runs."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
)

from eventctx.adapters.agent_framework import EventctxAgents
from eventctx.engine import Engine
from eventctx.log.record import Record
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply
from tests.adapters.drivers.agent_framework import ScriptedChat


def agent_of(client: ScriptedChat, ours: EventctxAgents, **more: Any) -> Agent[Any]:
    given = {"name": "agent", "middleware": ours.middleware, **more}
    return Agent(client, "Be brief.", **given)


def script(*steps: Reply | Exception | str, **more: Any) -> ScriptedChat:
    replies = [Reply(one) if isinstance(one, str) else one for one in steps]
    return ScriptedChat(script=replies, **more)


def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "words " * 400


def reads(page: int) -> Reply:
    return Reply(calls=[ToolRequest(f"call_{page}", "read", {"page": page})])


async def records(engine: Engine, session: str = "s") -> list[Record]:
    return [one async for one in engine.records(session)]


async def count(engine: Engine, *types: str, session: str = "s") -> list[int]:
    made = [one.type for one in await records(engine, session)]
    return [made.count(one) for one in types]


async def texts(engine: Engine, session: str = "s") -> list[str]:
    rows = [one.message for one in await engine.transcript(session)]
    return [str(row["content"][0].get("text", row["content"][0]["type"])) for row in rows]


def sent(client: ScriptedChat) -> list[list[str]]:
    return [[one.text or one.role for one in messages] for messages, _ in client.seen]


async def ask(agent: Agent[Any], text: str, session: AgentSession, stream: bool) -> str:
    if stream:
        running = agent.run(text, session=session, stream=True)
        return (await running.get_final_response()).text
    return (await agent.run(text, session=session)).text


HOW = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
