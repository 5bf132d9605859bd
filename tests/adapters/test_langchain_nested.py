"""Agents that tools of a LangChain agent run: each run is a session that is linked to the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

import eventctx.sync
from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.engine import Engine
from eventctx.stores.memory import MemoryStore
from tests.adapters.nested_runs import links, names
from tests.adapters.test_langchain import Scripted, scripted

RUN: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(MemoryStore())
    yield engine
    await engine.close()


def calls(call_id: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "ask", "args": {}, "id": call_id}])


def agent(model: Scripted, middleware: EventctxMiddleware, *tools: Any) -> Any:
    return create_agent(model, [*tools], system_prompt="Be brief.", middleware=[middleware])


async def check_views(engine: Engine, session: str, model: Scripted) -> None:
    """Check that this model received the verified views of a session, and nothing else."""
    views = []
    for row in (await engine.audit(session)).requests:
        view = await engine.request_view(session, position=row.position)
        assert view.verified
        views.append([one["content"] for one in view.messages])
    assert views == [[one.content for one in seen] for seen in model.seen]


async def test_an_agent_inside_an_agent_inside_an_agent_is_three_linked_sessions(
    engine: Engine,
) -> None:
    ours = EventctxMiddleware(engine, max_tokens=9_000)
    inmost = scripted(AIMessage("four"))
    inner = scripted(calls("k"), AIMessage("It is four."))
    outer = scripted(calls("c"), AIMessage("Four."))

    @tool("ask")
    async def ask_inmost() -> str:
        """Ask."""
        ran = await agent(inmost, ours).ainvoke({"messages": [HumanMessage("2+2?")]})
        return str(ran["messages"][-1].content)

    @tool("ask")
    async def ask_inner() -> str:
        """Ask."""
        ran = await agent(inner, ours, ask_inmost).ainvoke({"messages": [HumanMessage("Sum?")]})
        return str(ran["messages"][-1].content)

    await agent(outer, ours, ask_inner).ainvoke({"messages": [HumanMessage("Hi.")]}, RUN)
    assert await names(engine) == ["t", "t.c", "t.c.k"]
    await check_views(engine, "t", outer)
    await check_views(engine, "t.c", inner)
    await check_views(engine, "t.c.k", inmost)
    assert await links(engine, "t") == [("t.c", "c")]
    assert await links(engine, "t.c") == [("t", "c"), ("t.c.k", "k")]


async def test_two_agents_that_one_call_runs_at_once_are_two_sessions(engine: Engine) -> None:
    ours = EventctxMiddleware(engine)
    inner = [scripted(AIMessage("one")), scripted(AIMessage("two"))]

    @tool
    async def ask() -> str:
        """Ask."""
        asked = [
            agent(model, ours).ainvoke({"messages": [HumanMessage(f"{number}?")]})
            for number, model in enumerate(inner)
        ]
        await asyncio.gather(*asked)
        return "done"

    outer = scripted(calls("c"), AIMessage("Done."))
    await agent(outer, ours, ask).ainvoke({"messages": [HumanMessage("Hi.")]}, RUN)
    assert await names(engine) == ["t", "t.c", "t.c.2"]
    await check_views(engine, "t", outer)
    said = [(await engine.transcript(name))[-1].message for name in ("t.c", "t.c.2")]
    assert sorted([(one or {})["content"] for one in said]) == ["one", "two"]


async def test_an_agent_with_a_thread_of_its_own_is_recorded_there(engine: Engine) -> None:
    ours = EventctxMiddleware(engine)

    @tool
    async def ask() -> str:
        """Ask."""
        inner = agent(scripted(AIMessage("four")), ours)
        other: Any = {"configurable": {"thread_id": "other"}}
        await inner.ainvoke({"messages": [HumanMessage("2+2?")]}, other)
        return "four"

    outer = scripted(calls("c"), AIMessage("Four."))
    await agent(outer, ours, ask).ainvoke({"messages": [HumanMessage("Hi.")]}, RUN)
    assert await names(engine) == ["other", "t"]


def test_agents_that_are_called_synchronously_are_told_apart_too() -> None:
    with eventctx.sync.open("memory://") as engine:
        ours = EventctxMiddleware(engine)

        @tool
        def ask() -> str:
            """Ask."""
            inner = agent(scripted(AIMessage("four")), ours)
            return str(inner.invoke({"messages": [HumanMessage("2+2?")]})["messages"][-1].content)

        outer = scripted(calls("c"), AIMessage("Four."))
        agent(outer, ours, ask).invoke({"messages": [HumanMessage("Hi.")]}, RUN)
        assert [one.stream for one in engine.sessions()] == ["t", "t.c"]
        assert [len(engine.audit(name).requests) for name in ("t", "t.c")] == [2, 1]
