"""Strands' tools that fail, are refused, or ask a person. Where they run: ``test_strands.py``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from strands import ToolContext, tool
from strands.hooks import BeforeToolCallEvent
from strands.middleware import ExecuteToolStage, ToolResultEvent

import eventctx
from eventctx.adapters.strands import EventctxAgentPlugin
from eventctx.engine import Engine
from eventctx.testing import Reply
from tests.adapters.drivers.strands import agent, calls, check_requests, look, payload, types


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


async def test_a_tool_that_failed_and_one_that_was_refused(engine: Engine) -> None:
    def refuse(event: BeforeToolCallEvent) -> None:
        if event.tool_use["input"]["place"] == "here":
            event.cancel_tool = "not here"

    talks = agent(
        EventctxAgentPlugin(engine, "s"),
        *(calls("look", place="nowhere"), calls("look", "call_2", place="here"), Reply("Well.")),
        tools=[look],
        watch=refuse,
        seam=BeforeToolCallEvent,
    )
    await talks.invoke_async("Look.")
    await check_requests(engine, "s", talks.model)
    made = await types(engine, "s")
    assert [made.count(one) for one in ("tool:pre", "tool:post", "tool:error")] == [1, 0, 1]
    failed = await payload(engine, "s", "tool:error")
    assert failed["error_type"] == "LookupError"
    assert "not here" in str([one.message for one in await engine.transcript("s")])


async def test_a_run_that_waits_for_a_person_goes_on_with_the_answer(engine: Engine) -> None:
    def ask(event: BeforeToolCallEvent) -> None:
        event.interrupt("may-i", reason="really?")

    talks = agent(
        EventctxAgentPlugin(engine, "s"),
        *(calls("look", place="here"), Reply("Seen.")),
        tools=[look],
        watch=ask,
        seam=BeforeToolCallEvent,
    )
    result = await talks.invoke_async("Look.")
    (asked,) = result.interrupts
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await talks.invoke_async([answer])) == "Seen.\n"
    await check_requests(engine, "s", talks.model)
    made = await types(engine, "s")
    assert [made.count(one) for one in ("prompt:submit", "prompt:complete")] == [2, 2]


async def test_a_tool_that_asks_a_person_is_called_again_with_the_answer(engine: Engine) -> None:
    @tool(context=True)
    async def ask(question: str, tool_context: ToolContext) -> str:
        """Ask the person."""
        return f"said {tool_context.interrupt('asked', reason=question)}"

    talks = agent(
        EventctxAgentPlugin(engine, "s"),
        *(calls("ask", question="really?"), Reply("Good.")),
        tools=[ask],
    )
    (asked,) = (await talks.invoke_async("Ask.")).interrupts
    waits = await payload(engine, "s", "tool:error")
    assert waits["status"] == "cancelled"
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await talks.invoke_async([answer])) == "Good.\n"
    await check_requests(engine, "s", talks.model)
    made = await types(engine, "s")
    assert [made.count(one) for one in ("tool:pre", "tool:post", "tool:error")] == [2, 1, 1]


async def test_a_middleware_that_asks_a_person_lets_the_call_wait(engine: Engine) -> None:
    async def gate(context: Any, next_fn: Any) -> AsyncIterator[Any]:
        context.interrupt("may-i")
        async for event in next_fn(context):
            yield event

    plugin = EventctxAgentPlugin(engine, "s")
    talks = agent(plugin, calls("look", place="here"), Reply("Seen."), tools=[look])
    talks.add_middleware(ExecuteToolStage, gate)
    (asked,) = (await talks.invoke_async("Look.")).interrupts
    assert (await payload(engine, "s", "tool:error"))["status"] == "cancelled"
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await talks.invoke_async([answer])) == "Seen.\n"
    await check_requests(engine, "s", talks.model)


async def test_a_tool_that_gave_no_result_is_strands_to_tell(engine: Engine) -> None:
    async def swallows(context: Any, next_fn: Any) -> AsyncIterator[Any]:
        async for event in next_fn(context):
            if not isinstance(event, ToolResultEvent):
                yield event

    plugin = EventctxAgentPlugin(engine, "s")
    talks = agent(plugin, calls("look", place="here"), Reply("Well."), tools=[look])
    talks.add_middleware(ExecuteToolStage, swallows)
    await talks.invoke_async("Look.")
    await check_requests(engine, "s", talks.model)
    assert "did not yield a ToolResultEvent" in str(talks.messages)


async def test_a_helper_that_asks_a_person_is_called_again_with_the_answer(engine: Engine) -> None:
    @tool(context=True)
    async def ask(question: str, tool_context: ToolContext) -> str:
        """Ask the person."""
        return f"said {tool_context.interrupt('asked', reason=question)}"

    plugin = EventctxAgentPlugin(engine, "s")
    leads = agent(plugin, calls("helper", input="Ask."), Reply("Good."))
    asks = calls("ask", "call_2", question="really?")
    helps = agent(plugin, asks, Reply("Said."), name="helper", tools=[ask])
    leads.tool_registry.process_tools([helps.as_tool(name="helper")])
    (asked,) = (await leads.invoke_async("Ask.")).interrupts
    assert (await payload(engine, "s", "tool:error"))["status"] == "cancelled"
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await leads.invoke_async([answer])) == "Good.\n"
    await check_requests(engine, "s", leads.model)
    await check_requests(engine, "s.helper", helps.model)
