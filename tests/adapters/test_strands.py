"""Strands agents with our plugin, where strands can be imported: ``make elsewhere``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from pydantic import BaseModel
from strands.hooks import BeforeModelCallEvent

import eventctx
from eventctx.adapters.strands import EventctxAgentPlugin
from eventctx.adapters.strands.agent_session import usage_of
from eventctx.engine import Engine
from eventctx.log.usage import Usage
from eventctx.testing import AdapterContract, Reply
from tests.adapters.drivers.strands import (
    Scripted,
    StrandsDriver,
    agent,
    calls,
    check_requests,
    look,
    payload,
    types,
)
from tests.adapters.test_attributes import KNOWN


class TestTheContract(AdapterContract):
    driver = StrandsDriver
    knows = KNOWN["Strands Agents"]


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


# -- ways to call an agent -----------------------------------------------------------------------


def test_a_synchronous_call_is_recorded_in_a_store_of_the_plugins_own(tmp_path: Path) -> None:
    plugin = EventctxAgentPlugin(tmp_path / "agents.db", "s")
    talks = agent(plugin, calls("look", place="here"), Reply("Seen."), tools=[look])
    assert str(talks("Look here.")) == "Seen.\n"
    plugin.close()

    async def check() -> None:
        async with eventctx.open(tmp_path / "agents.db") as engine:
            await check_requests(engine, "s", talks.model)
            assert (await types(engine, "s"))[-1] == "prompt:complete"

    asyncio.run(check())


async def test_a_session_is_named_by_the_agent_where_the_plugin_does_not(engine: Engine) -> None:
    talks = agent(EventctxAgentPlugin(engine), Reply("Yes."))
    await talks.invoke_async("There?")
    assert [one.stream for one in await engine.sessions()] == [talks.session_id]


async def test_an_output_of_a_given_form_is_a_tool_and_its_prompt_no_persons(
    engine: Engine,
) -> None:
    class Found(BaseModel):
        """What was found."""

        number: int

    talks = agent(EventctxAgentPlugin(engine, "s"), Reply("Three."), calls("Found", number=3))
    result = await talks.invoke_async("How many?", structured_output_model=Found)
    assert result.structured_output == Found(number=3)
    await check_requests(engine, "s", talks.model)
    rows = [one.message for one in await engine.transcript("s")]
    assert [row.get("metadata") for row in rows] == [None, None, {"source": "hook"}, None, None]


# -- several agents ------------------------------------------------------------------------------


async def test_an_agent_as_a_tool_has_a_linked_session_of_its_own(engine: Engine) -> None:
    plugin = EventctxAgentPlugin(engine, "s")
    leads = agent(
        plugin,
        *(calls("helper", input="first?"), Reply("So.")),
        *(calls("helper", "call_2", input="second?"), Reply("So again.")),
    )
    helps = agent(plugin, Reply("One."), Reply("Two."), name="the helper")
    leads.tool_registry.process_tools([helps.as_tool(name="helper")])
    for text in ("Help.", "Again."):
        await leads.invoke_async(text)
    assert [one.stream for one in await engine.sessions()] == ["s", "s.the_helper"]
    await check_requests(engine, "s", leads.model)
    await check_requests(engine, "s.the_helper", helps.model)
    assert (await types(engine, "s.the_helper")).count("session:linked") == 1
    assert (await payload(engine, "s.the_helper", "session:linked"))["call_id"] == "call_1"
    told = await engine.transcript("s.the_helper")
    assert "first?" not in str([one.message for one in told])  # it begins anew for each call
    assert (await types(engine, "s.the_helper")).count("context:messages_set") == 1
    elsewhere = EventctxAgentPlugin(engine, "s")
    leads = agent(elsewhere, calls("helper", "call_3", input="third?"), Reply("So."))
    leads.tool_registry.process_tools(
        [agent(elsewhere, Reply("Three."), name="the helper").as_tool(name="helper")]
    )
    await leads.invoke_async("Once more.")
    assert (await types(engine, "s.the_helper")).count("session:linked") == 1


# -- what is recorded with the messages --------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "prompt"), [(112, 100), (142, 130)], ids=["counted as input", "counted beside it"]
)
def test_the_prompt_is_all_of_it_caches_included(total: int, prompt: int) -> None:
    told = {"inputTokens": 100, "outputTokens": 12, "totalTokens": total}
    told |= {"cacheReadInputTokens": 20, "cacheWriteInputTokens": 10}
    assert usage_of(told) == Usage(prompt=prompt, output=12, cache_read=20, cache_write=10)
    assert usage_of({"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}) is None


async def test_a_run_that_was_cancelled_is_a_cancelled_turn(engine: Engine) -> None:
    def cancel(event: BeforeModelCallEvent) -> None:
        event.agent.cancel()

    plugin = EventctxAgentPlugin(engine, "s")
    talks = agent(plugin, Reply("Yes."), watch=cancel, seam=BeforeModelCallEvent)
    assert (await talks.invoke_async("There?")).stop_reason == "cancelled"
    assert (await payload(engine, "s", "prompt:complete"))["status"] == "cancelled"


async def test_a_model_that_says_nothing_of_itself_is_asked_all_the_same(engine: Engine) -> None:
    class Silent(Scripted):
        get_config = None

    talks = agent(EventctxAgentPlugin(engine, "s"), model=Silent([Reply("Yes.")]))
    assert str(await talks.invoke_async("There?")) == "Yes.\n"
    assert "model" not in await payload(engine, "s", "provider:request")
