"""The OpenAI Agents SDK on our sessions, with the SDK's own scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

agents = pytest.importorskip("agents", reason="an extra: eventctx[openai-agents]")

from agents import (  # noqa: E402
    Agent,
    ModelProvider,
    OpenAIProvider,
    RunConfig,
    RunHooks,
    Runner,
    function_tool,
    handoff,
)
from agents.memory import SessionSettings  # noqa: E402
from agents.testing import ScriptedModel, function_call  # noqa: E402

import eventctx  # noqa: E402
import eventctx.sync  # noqa: E402
from eventctx.adapters.openai_agents import AgentsSession  # noqa: E402
from eventctx.adapters.openai_agents.session import asked_of  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.errors import InvalidSetting  # noqa: E402
from eventctx.testing import AdapterContract  # noqa: E402
from tests.adapters.drivers.openai_agents import (  # noqa: E402
    HOW,
    AgentsDriver,
    agent_of,
    approved,
    calls,
    erase,
    run,
)
from tests.adapters.logs import count, payloads, records_of, types_of, views  # noqa: E402
from tests.adapters.test_pages import KNOWN  # noqa: E402


class TestTheContract(AdapterContract):
    driver = AgentsDriver
    knows = KNOWN["OpenAI Agents SDK"]
    retries = "one call"


@function_tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "x" * 1_500


def reads(*pages: int) -> list[Any]:
    return [function_call("read", {"page": page}, call_id=f"call_{page}") for page in pages]


LONG = [*[reads(page, page + 100) for page in range(8)], "All read."]


def received(agent: Agent[Any]) -> list[list[Any]]:
    """What the model received, the system prompt first."""
    system = {"role": "system"}
    return [[system | {"content": one.system_instructions}, *one.input] for one in calls(agent)]


async def test_a_call_that_waits_for_approval_is_stored_once(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    agent = agent_of([function_call("erase", {}, call_id="call_e")], "Erased.", tools=[erase])
    assert await approved(agent, session) == "Erased."
    kinds = [one.get("type") or one.get("role") for one in await session.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    assert (await views(engine))[-1] == received(agent)[-1]


async def test_another_agent_takes_over_in_the_same_turn(engine: Engine) -> None:
    to_clerk = function_call("transfer_to_clerk", {}, call_id="call_t")
    agent = agent_of([to_clerk], handoffs=[handoff(agent_of("Filed.", name="clerk"))])
    session = await AgentsSession.open(engine, "s")
    assert await run(agent, "File it.", **session.options()) == "Filed."
    assert await count(engine, "prompt:submit") == [1]
    assert len(await views(engine)) == 2


@HOW
async def test_with_its_agent_known_a_prompt_is_in_its_turn_next_to_hooks_of_ones_own(
    engine: Engine, stream: bool
) -> None:
    seen: list[str] = []

    class Mine(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append("agent")

        async def on_llm_start(self, context: Any, agent: Any, system: Any, items: Any) -> None:
            seen.append("llm")

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            seen.append("tool")

    session = await AgentsSession.open(engine, "s")
    agent = agent_of("one", reads(1), "two", tools=[read])
    for text in ("a", "b"):
        await run(agent, text, stream, **session.options(agent, hooks=Mine()))
    assert seen == ["agent", "llm", "agent", "llm", "tool", "llm"]
    records = await records_of(engine)
    turns = {one.turn_id for one in records if one.type.startswith("context:message_added")}
    assert len(turns - {None}) == len(turns) == 2
    begun = await payloads(engine, "prompt:submit")
    assert [(one["number"], one["agent"]) for one in begun] == [(1, "a"), (2, "a")]
    assert records[-1].type == "prompt:complete"
    await session.add_items([{"role": "assistant", "content": "by hand"}])
    assert (await records_of(engine))[-1].turn_id is None


# -- loops ---------------------------------------------------------------------------------------


@pytest.fixture
def default_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop of ``run_sync``, which makes one and leaves it open where there is none."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("default_loop")
def test_it_serves_run_sync(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    agent = agent_of(*LONG, "Page 3 it was.", tools=[read])
    with eventctx.sync.open(path) as engine:
        session = AgentsSession(engine.session("s", max_tokens=4_000, reserve_tokens=0))
        for text in ("Read all.", "Which one?"):
            Runner.run_sync(agent, text, **session.options(agent))
        assert asyncio.run(session.get_items())[-1]["role"] == "assistant"  # type: ignore[typeddict-item]

    async def look() -> None:
        async with eventctx.open(path) as engine:
            assert await views(engine) == received(agent)
            assert (await types_of(engine))[-1] == "prompt:complete"
            assert await count(engine, "tool:pre", "tool:post") == [16, 16]

    asyncio.run(look())


def test_where_it_finds_no_loop_or_no_async_engine_it_says_what_to_do(
    tmp_path: Path, default_loop: asyncio.AbstractEventLoop
) -> None:
    with asyncio.Runner() as loop:
        engine = loop.run(eventctx.open(tmp_path / "agents.db").__aenter__())
        session = loop.run(AgentsSession.open(engine, "s"))
        asyncio.set_event_loop(default_loop)
        try:
            with pytest.raises(InvalidSetting, match=r"eventctx\.sync\.open"):
                Runner.run_sync(agent_of(), "Anybody?", **session.options())
            with pytest.raises(InvalidSetting, match="found no loop that runs"):
                AgentsSession(session.context)
        finally:
            loop.run(engine.close())
        with eventctx.sync.open("memory://") as blocking:
            given: Any = blocking
            with pytest.raises(InvalidSetting, match=r"AgentsSession\(engine\.session"):
                loop.run(AgentsSession.open(given, "s"))


# -- as storage alone ----------------------------------------------------------------------------


@HOW
async def test_as_storage_alone_it_holds_what_the_sdks_own_session_holds(
    engine: Engine, stream: bool
) -> None:
    plain, ours = agents.SQLiteSession("plain"), await AgentsSession.open(engine, "s")
    for session in (plain, ours):
        agent = agent_of(*LONG, "yes", tools=[read])
        for text in ("Read all.", "yes"):
            await run(agent, text, stream, session=session)
    for limit in (None, -1, 0, 1, 3, 100):
        assert await ours.get_items(limit) == await plain.get_items(limit)
    assert await ours.pop_item() == await plain.pop_item()
    assert await ours.get_items() == await plain.get_items()
    await ours.clear_session()
    assert await ours.get_items() == []
    assert await ours.pop_item() is None


async def test_a_limit_of_items_holds_for_the_sdk_and_leaves_the_log_whole(engine: Engine) -> None:
    session, agent = await AgentsSession.open(engine, "s"), agent_of(*"0123")
    limited = RunConfig(session_settings=SessionSettings(limit=2))
    for text in "abcd":
        await run(agent, text, **session.options(run_config=limited))
    assert [len(one.input) for one in calls(agent)] == [1, 3, 3, 3]
    assert len(await session.get_items()) == 8


# -- who is asked --------------------------------------------------------------------------------


class Elsewhere(OpenAIProvider):
    """A provider of models under names of its own."""


class Unknown(ModelProvider):
    def get_model(self, model_name: str | None) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "config", "provider"),
    [
        ("gpt-5.2", RunConfig(), "openai"),
        (None, RunConfig(), "openai"),
        ("openai/gpt-5.2", RunConfig(), "openai"),
        ("litellm/anthropic/claude-opus-5-5", RunConfig(), "anthropic"),
        ("any-llm/openrouter/openai/gpt-5.2", RunConfig(), "openrouter"),
        ("gpt-5.2", RunConfig(model_provider=Elsewhere()), "openai"),
        ("gpt-5.2", RunConfig(model_provider=Unknown()), None),
        (ScriptedModel([]), RunConfig(), None),
    ],
)
def test_the_provider_is_the_one_that_the_sdk_takes_for_the_name_of_a_model(
    model: Any, config: RunConfig, provider: str | None
) -> None:
    asked = asked_of(Agent("a", model=model), config, streams=True)
    assert (asked.provider, asked.settings.stream) == (provider, True)
