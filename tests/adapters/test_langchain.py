"""LangChain agents with our middleware, with models that follow a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
from langchain_core.language_models.fake_chat_models import (
    FakeMessagesListChatModel,
)
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import Field

import eventctx
from eventctx import Engine
from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langchain.middleware import KnownRows
from eventctx.adapters.langgraph.rows import row_of
from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_event
from eventctx.log.events import PromptSubmit, ToolError
from eventctx.testing import AdapterContract
from tests.adapters.drivers.langchain import LangChainDriver, SavingDriver
from tests.adapters.logs import links, names, records_of, types_of, views
from tests.adapters.test_pages import KNOWN


class TestTheContract(AdapterContract):
    driver = LangChainDriver
    knows = KNOWN["LangChain, LangGraph"]


class TestTheContractWithOurSaver(AdapterContract):
    driver = SavingDriver
    knows = KNOWN["LangChain, LangGraph"]


SMALL: dict[str, Any] = {"max_tokens": 4_000, "reserve_tokens": 0}
RUN: Any = {"configurable": {"thread_id": "s"}, "recursion_limit": 100}


class Scripted(FakeMessagesListChatModel):
    """Answers by a script, and keeps what it received. An error in the script is raised."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)
    fails: list[Exception] = Field(default_factory=list)

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> Any:
        self.seen.append(list(messages))
        if self.fails:
            raise self.fails.pop(0)
        return super()._generate(messages, stop, run_manager, **more)


def scripted(*script: AIMessage, fails: tuple[Exception, ...] = ()) -> Scripted:
    return Scripted(responses=list(script), fails=list(fails))


def reads(*pages: int) -> AIMessage:
    calls = [{"name": "read", "args": {"page": page}, "id": f"call_{page}"} for page in pages]
    return AIMessage("", tool_calls=calls)


LONG = [*[reads(page, page + 100) for page in range(8)], AIMessage("All read.")]


@tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "x" * 1_500


@pytest.fixture
def agent_of(engine: Engine) -> Iterator[Callable[..., Any]]:
    saver = InMemorySaver()

    def make(model: Scripted, *others: Any, tools: Any = (read,), **settings: Any) -> Any:
        ours = EventctxMiddleware(engine, **settings)
        return create_agent(
            model,
            list(tools),
            system_prompt="Be brief.",
            middleware=[*others, ours],
            checkpointer=saver,
        )

    yield make


async def ask(agent: Any, text: str) -> list[AnyMessage]:
    answered = await agent.ainvoke({"messages": [HumanMessage(text)]}, RUN)
    messages: list[AnyMessage] = answered["messages"]
    return messages


async def transcript(engine: Engine, session: str) -> list[str]:
    rows = await (await engine.session(session)).get_messages()
    return [row["content"] for row in rows]


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a model is shown of a row."""
    return row["role"], row["content"], row.get("tool_calls") or [], row.get("tool_call_id")


async def shown_views(engine: Engine) -> list[list[tuple[Any, ...]]]:
    return [[shown(row) for row in view] for view in await views(engine)]


def received(model: Scripted) -> list[list[tuple[Any, ...]]]:
    return [[shown(row_of(one)) for one in request] for request in model.seen]


def test_it_serves_agents_that_are_called_synchronously(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    model, ours = scripted(*LONG), EventctxMiddleware(path, **SMALL)
    agent = create_agent(model, [read], middleware=[ours], checkpointer=InMemorySaver())
    answered = agent.invoke({"messages": [HumanMessage("Read all.")]}, RUN)
    assert len(answered["messages"]) == 26
    ours.close()
    ours.close()  # a second time does nothing

    async def look() -> None:
        async with eventctx.open(path) as engine:
            assert await shown_views(engine) == received(model)
            assert (await types_of(engine))[-1] == "prompt:complete"

    asyncio.run(look())


async def test_in_the_loop_of_the_engine_a_synchronous_call_is_refused(
    agent_of: Callable[..., Any],
) -> None:
    agent = agent_of(scripted(AIMessage("Yes.")))
    with pytest.raises(InvalidSetting, match="await the host's asynchronous method"):
        agent.invoke({"messages": [HumanMessage("Yes?")]}, RUN)
    answered = await asyncio.to_thread(agent.invoke, {"messages": [HumanMessage("Yes?")]}, RUN)
    assert answered["messages"][-1].content == "Yes."


async def test_a_run_without_a_thread_says_what_to_give(
    engine: Engine, agent_of: Callable[..., Any]
) -> None:
    with pytest.raises(InvalidSetting, match="expected a thread_id"):
        agent = create_agent(scripted(AIMessage("a")), [], middleware=[EventctxMiddleware(engine)])
        await agent.ainvoke({"messages": [HumanMessage("a")]})
    named = EventctxMiddleware(engine, session="s")
    agent = create_agent(scripted(AIMessage("a")), [], middleware=[named])
    await agent.ainvoke({"messages": [HumanMessage("a")]})
    assert len(await views(engine)) == 1


# -- what happens to the state -------------------------------------------------------------------


async def test_what_the_graph_removes_is_an_event_and_stays_in_the_log(
    engine: Engine, agent_of: Callable[..., Any]
) -> None:
    model = scripted(AIMessage("A."), AIMessage("B."))
    agent = agent_of(model)
    *_, last = await ask(agent, "a")
    await agent.aupdate_state(RUN, {"messages": [RemoveMessage(id=str(last.id))]})
    await ask(agent, "b")
    assert (await types_of(engine)).count("context:messages_set") == 1
    assert [row[1] for row in received(model)[-1]] == ["Be brief.", "a", "b"]
    assert await shown_views(engine) == received(model)


async def test_who_goes_back_in_time_goes_on_from_there(
    engine: Engine, agent_of: Callable[..., Any]
) -> None:
    model = scripted(AIMessage("A."), AIMessage("B."), AIMessage("C."))
    agent = agent_of(model)
    await ask(agent, "a")
    earlier = (await agent.aget_state(RUN)).config
    await ask(agent, "b")
    await agent.ainvoke({"messages": [HumanMessage("c")]}, earlier)
    assert [row[1] for row in received(model)[-1]] == ["Be brief.", "a", "A.", "c"]
    assert await shown_views(engine) == received(model)


# -- what goes wrong -----------------------------------------------------------------------------


async def test_a_list_that_another_middleware_edited_under_the_same_ids_is_sent_as_it_is(
    engine: Engine, agent_of: Callable[..., Any]
) -> None:
    """``ContextEditingMiddleware`` clears old results in copies that keep their ids."""
    model = scripted(*[reads(page) for page in range(8)], AIMessage("All read."))
    clears = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1_500, keep=1)])
    await ask(agent_of(model, clears), "Read all.")
    cleared = [sum(one.content == "[cleared]" for one in request) for request in model.seen]
    assert max(cleared) == 7
    rows = (await engine.audit("s")).requests
    assert [(row.additions, row.missing) for row in rows] == [(n, n) for n in cleared]


async def test_a_tool_that_asks_a_person_has_not_failed(
    engine: Engine, agent_of: Callable[..., Any]
) -> None:
    @tool
    def confirm() -> str:
        """Ask whether to go on."""
        return str(interrupt("Go on?"))

    call = {"name": "confirm", "args": {}, "id": "call_c"}
    model = scripted(AIMessage("", tool_calls=[call]), AIMessage("Done."))
    agent = agent_of(model, tools=[confirm])
    await ask(agent, "Do it.")
    await agent.ainvoke(Command(resume="yes"), RUN)
    assert await shown_views(engine) == received(model)
    assert (await transcript(engine, "s"))[2:] == ["yes", "Done."]
    ends = [decode_event(one) for one in await records_of(engine) if one.type == "tool:error"]
    assert [one.status for one in ends if isinstance(one, ToolError)] == ["cancelled"]


async def test_a_turn_begins_with_the_agents_name_before_its_messages(engine: Engine) -> None:
    ours = EventctxMiddleware(engine)
    await ask(create_agent(scripted(AIMessage("a")), [], middleware=[ours], name="clerk"), "a")
    begins = (await records_of(engine))[1]
    assert decode_event(begins) == PromptSubmit(number=1, agent="clerk")


# -- messages ------------------------------------------------------------------------------------


def test_messages_that_are_shown_whole_go_back_as_the_same_objects() -> None:
    made = object()
    messages: list[BaseMessage] = [
        HumanMessage([{"type": "text", "text": "x"}]),
        AIMessage("", tool_calls=[{"name": "read", "args": {"page": 1}, "id": "c"}]),
        ToolMessage("out", tool_call_id="c", artifact=made),
        SystemMessage("s"),
    ]
    known = KnownRows()
    rows = known.of(messages)
    back = known.messages_of(rows)
    assert all(one is other for one, other in zip(back, messages, strict=True))
    shortened = known.messages_of([{**rows[2], "content": "o…"}, {"role": "user", "content": "n"}])
    assert [(type(one), one.content) for one in shortened] == [
        (ToolMessage, "o…"),
        (HumanMessage, "n"),
    ]
    assert shortened[0].tool_call_id == "c"  # type: ignore[union-attr]


def test_a_call_that_was_changed_in_its_place_is_read_again() -> None:
    """So does ``HumanInTheLoopMiddleware`` in LangChain 1.2 where a person edits a call."""
    known, message = KnownRows(), reads(1)
    (before,) = known.of([message])
    message.tool_calls = reads(2).tool_calls
    (after,) = known.of([message])
    assert [row["tool_calls"][0]["args"] for row in (before, after)] == [{"page": 1}, {"page": 2}]


async def test_an_answer_of_calls_alone_whose_content_the_view_leaves_out_goes_back(
    engine: Engine,
) -> None:
    """ChatAnthropic holds a call in the content, too; a view keeps it once."""
    block = {"type": "tool_use", "id": "c1", "name": "read", "input": {"page": 1}}
    call = {"name": "read", "args": {"page": 1}, "id": "c1", "type": "tool_call"}
    answer = AIMessage([block], tool_calls=[call])  # type: ignore[list-item]
    session = await engine.session("s")
    known = KnownRows()
    given = [HumanMessage("Read."), answer, ToolMessage("page 1", tool_call_id="c1")]
    await session.add_messages(known.of(given))
    made = known.messages_of(await session.get_messages_for_request())
    assert [type(one) for one in made] == [HumanMessage, AIMessage, ToolMessage]
    assert getattr(made[1], "tool_calls", None) == [call]


# -- agents that tools run -------------------------------------------------------------------------


def asks_for(call_id: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "ask", "args": {}, "id": call_id}])


def agent_with(model: Scripted, middleware: EventctxMiddleware, *tools: Any) -> Any:
    return create_agent(model, [*tools], system_prompt="Be brief.", middleware=[middleware])


async def check_views(engine: Engine, session: str, model: Scripted) -> None:
    """Check that this model received the verified views of a session, and nothing else."""
    said = [[one["content"] for one in view] for view in await views(engine, session)]
    assert said == [[one.content for one in seen] for seen in model.seen]


async def test_an_agent_inside_an_agent_inside_an_agent_is_three_linked_sessions(
    engine: Engine,
) -> None:
    ours = EventctxMiddleware(engine, max_tokens=9_000)
    inmost = scripted(AIMessage("four"))
    inner = scripted(asks_for("k"), AIMessage("It is four."))
    outer = scripted(asks_for("c"), AIMessage("Four."))

    @tool("ask")
    async def ask_inmost() -> str:
        """Ask."""
        ran = await agent_with(inmost, ours).ainvoke({"messages": [HumanMessage("2+2?")]})
        return str(ran["messages"][-1].content)

    @tool("ask")
    async def ask_inner() -> str:
        """Ask."""
        ran = await agent_with(inner, ours, ask_inmost).ainvoke(
            {"messages": [HumanMessage("Sum?")]}
        )
        return str(ran["messages"][-1].content)

    await agent_with(outer, ours, ask_inner).ainvoke({"messages": [HumanMessage("Hi.")]}, RUN)
    assert await names(engine) == ["s", "s.c", "s.c.k"]
    await check_views(engine, "s", outer)
    await check_views(engine, "s.c", inner)
    await check_views(engine, "s.c.k", inmost)
    assert await links(engine, "s") == [("s.c", "c")]
    assert await links(engine, "s.c") == [("s", "c"), ("s.c.k", "k")]
