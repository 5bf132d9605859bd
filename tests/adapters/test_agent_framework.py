"""Agents of Microsoft Agent Framework with our middleware: their runs, tools and history."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")

from agent_framework import (
    Agent,
    AgentSession,
    ChatMiddleware,
    Content,
    FunctionMiddleware,
    Message,
    MiddlewareTermination,
    UserInputRequiredException,
    tool,
)

import eventctx
from eventctx.adapters.agent_framework import EventctxAgents
from eventctx.engine import Engine
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import AdapterContract, Reply
from tests.adapters.drivers.agent_framework import (
    AgentFrameworkDriver,
    agent_of,
    count,
    read,
    reads,
    script,
    sent,
    texts,
)
from tests.adapters.logs import records_of
from tests.adapters.test_pages import KNOWN


class TestTheContract(AdapterContract):
    driver = AgentFrameworkDriver
    knows = KNOWN["Microsoft Agent Framework"]


# -- the framework's own history -----------------------------------------------------------------


async def test_the_history_of_the_framework_stays_its_own(engine: Engine) -> None:
    client, session = script(reads(1), "Read.", "Page 1."), AgentSession(session_id="s")
    agent = agent_of(client, EventctxAgents(engine), tools=[read])
    await agent.run("Read page 1.", session=session)
    await agent.run("Which was it?", session=session)
    assert len(session.state["in_memory"]["messages"]) == 6
    assert await texts(engine) == [
        "Read page 1.",
        "tool_use",
        "tool_result",
        "Read.",
        "Which was it?",
        "Page 1.",
    ]
    assert await count(engine, "context:messages_set") == [0]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0)] * 3


async def test_a_later_run_that_failed_is_forgotten_too(engine: Engine) -> None:
    session = AgentSession(session_id="s")
    client = script("One.", reads(1), OSError("unplugged"), "Three.")
    agent = agent_of(client, EventctxAgents(engine), tools=[read])
    await agent.run("First?", session=session)
    with pytest.raises(OSError, match="unplugged"):
        await agent.run("Second?", session=session)
    again = agent_of(client, EventctxAgents(engine), tools=[read])  # as another process would
    await again.run("Third?", session=session)
    assert await texts(engine) == ["First?", "One.", "Third?", "Three."]
    assert not any("agent_framework" in one.message for one in await engine.transcript("s"))
    assert await count(engine, "context:messages_set", "context:request_sent") == [1, 0]


# -- subagents and workflows ---------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
async def test_an_agent_as_a_tool_has_a_linked_session(engine: Engine, shared: bool) -> None:
    ours = EventctxAgents(engine)
    helper = agent_of(script("Helped."), ours, name="helper")
    call = ToolRequest("c", "helper", {"task": "Help."})
    client = script(Reply(calls=[call]), "Done.")
    tool = helper.as_tool(propagate_session=shared)
    leader = agent_of(client, ours, name="leader", tools=[tool])
    await leader.run("Lead.", session=AgentSession(session_id="s"))
    first, second = [one.stream for one in await engine.sessions()]
    assert first == "s"
    assert second == "s.helper" or not shared
    assert await texts(engine, second) == ["Help.", "Helped."]
    assert await texts(engine) == ["Lead.", "tool_use", "tool_result", "Done."]
    linked = [one for one in await records_of(engine, second) if one.type == "session:linked"]
    (link,) = [json.loads(one.payload) for one in linked]
    assert (link["session"], link["call_id"]) == ("s", "c")


async def test_an_agent_that_one_answer_calls_twice_has_a_session_for_each_call(
    engine: Engine,
) -> None:
    ours = EventctxAgents(engine)
    helper = agent_of(script("Helped.", "Again."), ours, name="helper")
    asks = [ToolRequest(f"c{n}", "helper", {"task": f"Help {n}."}) for n in (1, 2)]
    tool = helper.as_tool(propagate_session=True)
    leader = agent_of(script(Reply(calls=asks), "Done."), ours, name="leader", tools=[tool])
    await leader.run("Lead.", session=AgentSession(session_id="s"))
    assert await texts(engine, "s.helper") == ["Help 1.", "Helped."]
    second = await texts(engine, "s.helper.c2")  # after what the framework's session holds by then
    assert second[-2:] == ["Help 2.", "Again."]
    assert await count(engine, "session:linked") == [2]
    for session in ("s.helper", "s.helper.c2"):
        assert await count(engine, "context:messages_set", session=session) == [0]


# -- tools ---------------------------------------------------------------------------------------


async def test_a_tool_that_waits_for_a_person_did_not_fail(engine: Engine) -> None:
    asks = Content.from_oauth_consent_request("https://example.org/consent")

    def look(place: str) -> str:
        """Look somewhere."""
        raise UserInputRequiredException(contents=[asks])

    call = ToolRequest("c", "look", {"place": "attic"})
    agent = agent_of(script(Reply(calls=[call])), EventctxAgents(engine), tools=[look])
    await agent.run("Look.", session=AgentSession(session_id="s"))
    (left,) = [one for one in await records_of(engine) if one.type == "tool:error"]
    assert json.loads(left.payload)["status"] == "cancelled"


async def test_a_call_that_waits_for_approval_goes_on_when_it_has_it(engine: Engine) -> None:
    @tool(approval_mode="always_require")
    def look(place: str) -> str:
        """Look somewhere."""
        return f"{place} seen"

    call = ToolRequest("c", "look", {"place": "attic"})
    client, session = script(Reply(calls=[call]), "Seen.", "Yes."), AgentSession(session_id="s")
    agent = agent_of(client, EventctxAgents(engine), tools=[look])
    asked = await agent.run("Look.", session=session)
    (request,) = asked.user_input_requests
    approval = Message("user", [request.to_function_approval_response(approved=True)])
    assert (await agent.run(approval, session=session)).text == "Seen."
    assert (await agent.run("Really?", session=session)).text == "Yes."
    assert await texts(engine) == [
        "Look.",
        "tool_use",
        "tool_result",
        "Seen.",
        "Really?",
        "Yes.",
    ]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0)] * 3


async def test_a_middleware_may_answer_in_the_tools_place(engine: Engine) -> None:
    class Cached(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            context.result = "cached"
            raise MiddlewareTermination(result="cached")

    client = script(reads(1), "Never asked.")
    ours = EventctxAgents(engine)
    agent = agent_of(client, ours, tools=[read], middleware=[*ours.middleware, Cached()])
    session = AgentSession(session_id="s")
    await agent.run("Read.", session=session)
    assert await texts(engine) == ["Read.", "tool_use", "tool_result"]
    assert await count(engine, "tool:pre", "tool:post", "tool:error") == [1, 1, 0]
    await agent.run("Now?", session=session)
    assert sent(client)[1] == ["Read.", "assistant", "tool", "Now?"]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0)] * 2


async def test_a_stream_that_nobody_reads_to_its_end_is_a_cancelled_turn(engine: Engine) -> None:
    class Behind(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()
            context.result.with_cleanup_hook(lambda: closed.append("closed"))

    closed: list[str] = []
    ours = EventctxAgents(engine)
    middleware = [*ours.middleware, Behind()]
    agent = agent_of(script("A long answer."), ours, middleware=middleware)
    running = agent.run("Tell.", session=AgentSession(session_id="s"), stream=True)
    async for _ in running:
        break
    await running.close()
    assert closed == ["closed"]
    ends = [
        json.loads(one.payload) for one in await records_of(engine) if one.type == "prompt:complete"
    ]
    assert [one["status"] for one in ends] == ["cancelled"]


# -- the ways in ---------------------------------------------------------------------------------


def test_it_opens_a_store_of_its_own_for_a_path(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"

    async def talk() -> None:
        ours = EventctxAgents(path, "s")
        await agent_of(script("Yes."), ours).run("There?")
        ours.close()
        async with eventctx.open(path) as engine:
            assert await texts(engine) == ["There?", "Yes."]

    asyncio.run(talk())


async def test_the_bundle_is_one_unit(engine: Engine) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the framework calls the class experimental
        ours = EventctxAgents(engine, "s").bundle
    await Agent(script("Yes."), middleware=[ours]).run("There?")
    assert await texts(engine) == ["There?", "Yes."]


async def test_the_history_alone_stores_the_conversation(engine: Engine) -> None:
    client, session = script("One.", "Two."), AgentSession(session_id="s")
    agent = Agent(client, context_providers=[EventctxAgents(engine).history])
    await agent.run("First?", session=session)
    await agent.run("Second?", session=session)
    assert sent(client)[1] == ["First?", "One.", "Second?"]
    assert await texts(engine) == ["First?", "One.", "Second?", "Two."]


async def test_a_run_that_failed_is_forgotten_as_the_framework_forgets_it(engine: Engine) -> None:
    client, session = script(OSError("unplugged"), "Yes.", "Still."), AgentSession(session_id="s")
    agent = agent_of(client, EventctxAgents(engine))
    with pytest.raises(OSError, match="unplugged"):
        await agent.run("Anybody?", session=session)
    await agent.run("And now?", session=session)
    await agent.run("Really?", session=session)
    assert await texts(engine) == ["And now?", "Yes.", "Really?", "Still."]
    assert sent(client) == [["Anybody?"], ["And now?"], ["And now?", "Yes.", "Really?"]]
    assert await count(engine, "context:messages_set", "context:request_sent") == [1, 0]


async def test_one_named_session_keeps_all_runs(engine: Engine) -> None:
    ours = EventctxAgents(engine, "s")
    agent = agent_of(script("One.", "Two."), ours, context_providers=[ours.history])
    await agent.run("First?")
    await agent.run("Second?")
    assert await texts(engine) == ["First?", "One.", "Second?", "Two."]
