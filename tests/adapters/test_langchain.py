"""LangChain agents with our middleware, with models that follow a script."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

import eventctx
from eventctx import Engine
from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langchain.middleware import KnownRows
from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_event
from eventctx.log.events import PromptSubmit
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import AdapterContract, Reply
from tests.adapters.drivers.base import KNOWN
from tests.adapters.drivers.langchain import (
    LangChainDriver,
    SavingDriver,
    ScriptedChat,
    received,
    shown,
)
from tests.adapters.logs import audited, count, links, names, payloads, records_of, types_of, views


class TestTheContract(AdapterContract):
    driver = LangChainDriver
    knows = KNOWN["LangChain, LangGraph"]


class TestTheContractWithOurSaver(AdapterContract):
    driver = SavingDriver
    knows = KNOWN["LangChain, LangGraph"]


RUN: Any = {"configurable": {"thread_id": "s"}, "recursion_limit": 100}


def scripted(*script: str | Reply) -> ScriptedChat:
    return ScriptedChat(script=[Reply(one) if isinstance(one, str) else one for one in script])


def calls(name: str, *ids: str, **arguments: Any) -> Reply:
    return Reply(calls=[ToolRequest(one, name, arguments) for one in ids])


def reads(*pages: int) -> Reply:
    return Reply(calls=[ToolRequest(f"call_{page}", "read", {"page": page}) for page in pages])


@tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "x" * 1_500


def agent_of(model: ScriptedChat, ours: Any, *others: Any, tools: Any = (read,)) -> Any:
    """An agent with our middleware, on this engine or as it is, behind the others."""
    ours = EventctxMiddleware(ours) if isinstance(ours, Engine) else ours
    given = {"system_prompt": "Be brief.", "checkpointer": InMemorySaver()}
    return create_agent(model, list(tools), middleware=[*others, ours], **given)


def asks(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


async def shown_views(engine: Engine, session: str = "s") -> list[list[Any]]:
    return [[shown(row) for row in view] for view in await views(engine, session)]


def test_it_serves_agents_that_are_called_synchronously(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    model = scripted(*[reads(page, page + 100) for page in range(8)], "All read.")
    ours = EventctxMiddleware(path, max_tokens=4_000, reserve_tokens=0)
    answered = agent_of(model, ours).invoke(asks("Read all."), RUN)
    assert len(answered["messages"]) == 26
    ours.close()
    ours.close()  # a second time does nothing

    async def look() -> None:
        async with eventctx.open(path) as engine:
            assert await shown_views(engine) == received(model)
            assert (await types_of(engine))[-1] == "prompt:complete"

    asyncio.run(look())


async def test_in_the_loop_of_the_engine_a_synchronous_call_is_refused(engine: Engine) -> None:
    agent = agent_of(scripted("Yes."), engine)
    with pytest.raises(InvalidSetting, match="await the host's asynchronous method"):
        agent.invoke(asks("Yes?"), RUN)
    answered = await asyncio.to_thread(agent.invoke, asks("Yes?"), RUN)
    assert answered["messages"][-1].content == "Yes."


async def test_a_run_without_a_thread_says_what_to_give(engine: Engine) -> None:
    with pytest.raises(InvalidSetting, match="expected a thread_id"):
        agent = create_agent(scripted("a"), [], middleware=[EventctxMiddleware(engine)])
        await agent.ainvoke(asks("a"))
    named = EventctxMiddleware(engine, session="s")
    agent = create_agent(scripted("a"), [], middleware=[named], name="clerk")
    await agent.ainvoke(asks("a"))
    assert len(await views(engine)) == 1
    begins = (await records_of(engine))[1]  # before its messages, with the agent's name
    assert decode_event(begins) == PromptSubmit(number=1, agent="clerk")


async def test_what_the_graph_removes_is_an_event_and_stays_in_the_log(engine: Engine) -> None:
    model = scripted("A.", "B.")
    agent = agent_of(model, engine)
    last = (await agent.ainvoke(asks("a"), RUN))["messages"][-1]
    await agent.aupdate_state(RUN, {"messages": [RemoveMessage(id=last.id)]})
    await agent.ainvoke(asks("b"), RUN)
    assert await count(engine, "context:messages_set") == [1]
    assert [row[1] for row in received(model)[-1]] == ["Be brief.", "a", "b"]
    assert await shown_views(engine) == received(model)


async def test_who_goes_back_in_time_goes_on_from_there(engine: Engine) -> None:
    model = scripted("A.", "B.", "C.")
    agent = agent_of(model, engine)
    await agent.ainvoke(asks("a"), RUN)
    earlier = (await agent.aget_state(RUN)).config
    await agent.ainvoke(asks("b"), RUN)
    await agent.ainvoke(asks("c"), earlier)
    assert [row[1] for row in received(model)[-1]] == ["Be brief.", "a", "A.", "c"]
    assert await shown_views(engine) == received(model)


async def test_a_list_that_another_middleware_edited_is_sent_as_it_is(engine: Engine) -> None:
    """``ContextEditingMiddleware`` clears old results in copies that keep their ids."""
    model = scripted(*map(reads, range(8)), "All read.")
    clears = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1_500, keep=1)])
    await agent_of(model, engine, clears).ainvoke(asks("Read all."), RUN)
    cleared = [sum(one.content == "[cleared]" for one in request) for request in model.seen]
    assert max(cleared) == 7
    assert await audited(engine) == [(n, n) for n in cleared]


async def test_a_tool_that_asks_a_person_has_not_failed(engine: Engine) -> None:
    @tool
    def confirm() -> str:
        """Ask whether to go on."""
        return str(interrupt("Go on?"))

    model = scripted(calls("confirm", "call_c"), "Done.")
    agent = agent_of(model, engine, tools=[confirm])
    await agent.ainvoke(asks("Do it."), RUN)
    await agent.ainvoke(Command(resume="yes"), RUN)
    assert await shown_views(engine) == received(model)
    rows = [one.message["content"] for one in await engine.transcript("s")]
    assert rows[2:] == ["yes", "Done."]
    assert [one["status"] for one in await payloads(engine, "tool:error")] == ["cancelled"]


def asks_to_read(page: int) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "read", "args": {"page": page}, "id": "c"}])


def test_messages_shown_whole_go_back_as_the_same_objects_if_nobody_changed_them() -> None:
    messages: list[BaseMessage] = [
        HumanMessage([{"type": "text", "text": "x"}]),
        asks_to_read(1),
        ToolMessage("out", tool_call_id="c", artifact=object()),
        SystemMessage("s"),
    ]
    known = KnownRows()
    rows = known.of(messages)
    back = known.messages_of(rows)
    assert all(one is other for one, other in zip(back, messages, strict=True))
    out, said = known.messages_of([{**rows[2], "content": "o…"}, {"role": "user", "content": "n"}])
    assert isinstance(out, ToolMessage) and (out.content, out.tool_call_id) == ("o…", "c")
    assert isinstance(said, HumanMessage) and said.content == "n"
    # So does HumanInTheLoopMiddleware in LangChain 1.2 where a person edits a call.
    asked = asks_to_read(1)
    (before,) = known.of([asked])
    asked.tool_calls = asks_to_read(2).tool_calls
    (after,) = known.of([asked])
    assert [row["tool_calls"][0]["args"] for row in (before, after)] == [{"page": 1}, {"page": 2}]


async def test_an_answer_of_calls_without_their_content_goes_back(engine: Engine) -> None:
    """ChatAnthropic holds a call in the content, too; a view keeps it once."""
    block = {"type": "tool_use", "id": "c1", "name": "read", "input": {"page": 1}}
    call = {"name": "read", "args": {"page": 1}, "id": "c1", "type": "tool_call"}
    answer = AIMessage([block], tool_calls=[call])  # type: ignore[list-item]
    session, known = await engine.session("s"), KnownRows()
    given = [HumanMessage("Read."), answer, ToolMessage("page 1", tool_call_id="c1")]
    await session.add_messages(known.of(given))
    made = known.messages_of(await session.get_messages_for_request())
    assert [type(one) for one in made] == [HumanMessage, AIMessage, ToolMessage]
    assert getattr(made[1], "tool_calls", None) == [call]


async def test_agents_in_agents_in_agents_are_three_linked_sessions(engine: Engine) -> None:
    ours = EventctxMiddleware(engine, max_tokens=9_000)
    inmost, inner = scripted("four"), scripted(calls("ask", "k"), "It is four.")
    outer = scripted(calls("ask", "c"), "Four.")

    def agent_on(model: ScriptedChat, *tools: Any) -> Any:
        return create_agent(model, [*tools], system_prompt="Be brief.", middleware=[ours])

    def asking(agent: Any) -> Any:
        @tool
        async def ask() -> str:
            """Ask."""
            return str((await agent.ainvoke(asks("Sum?")))["messages"][-1].content)

        return ask

    agent = agent_on(outer, asking(agent_on(inner, asking(agent_on(inmost)))))
    await agent.ainvoke(asks("Hi."), RUN)
    assert await names(engine) == ["s", "s.c", "s.c.k"]
    for session, model in {"s": outer, "s.c": inner, "s.c.k": inmost}.items():
        assert await shown_views(engine, session) == received(model)
    assert await links(engine, "s") == [("s.c", "c")]
    assert await links(engine, "s.c") == [("s", "c"), ("s.c.k", "k")]
