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
from agents.testing import (  # noqa: E402
    ScriptedModel,
    assistant_message,
    function_call,
)

import eventctx  # noqa: E402
import eventctx.sync  # noqa: E402
from eventctx.adapters.openai_agents import AgentsSession  # noqa: E402
from eventctx.adapters.openai_agents.session import asked_of  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.errors import InvalidSetting  # noqa: E402
from eventctx.log.codec import decode_event  # noqa: E402
from eventctx.log.events import PromptSubmit  # noqa: E402
from eventctx.testing import AdapterContract  # noqa: E402
from tests.adapters.drivers.openai_agents import AgentsDriver  # noqa: E402
from tests.adapters.logs import records_of, types_of, views  # noqa: E402
from tests.adapters.test_pages import KNOWN  # noqa: E402

HOW = ["run", "run_streamed"]


class TestTheContract(AdapterContract):
    driver = AgentsDriver
    knows = KNOWN["OpenAI Agents SDK"]
    retries = "one call"


SMALL = {"max_tokens": 4_000, "reserve_tokens": 0}


@function_tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "x" * 1_500


def reader(script: list[Any], **more: Any) -> Agent[Any]:
    return Agent(
        name="reader",
        instructions="Be brief.",
        model=ScriptedModel(script),
        tools=[read],
        **more,
    )


def calls(agent: Agent[Any]) -> list[Any]:
    model = agent.model
    assert isinstance(model, ScriptedModel)
    return list(model.calls)


async def run(how: str, agent: Agent[Any], text: str, **options: Any) -> Any:
    if how == "run":
        return (await Runner.run(agent, text, **options)).final_output
    streamed = Runner.run_streamed(agent, text, **options)
    async for _ in streamed.stream_events():
        pass
    return streamed.final_output


def reads(*pages: int) -> list[Any]:
    return [function_call("read", {"page": page}, call_id=f"call_{page}") for page in pages]


LONG = [*[reads(page, page + 100) for page in range(8)], [assistant_message("All read.")]]


def received(agent: Agent[Any]) -> list[list[Any]]:
    """What the model received, the system prompt first."""
    system = {"role": "system"}
    return [[system | {"content": one.system_instructions}, *one.input] for one in calls(agent)]


# -- what goes wrong -----------------------------------------------------------------------------


async def test_a_call_that_waits_for_approval_is_stored_once(engine: Engine) -> None:
    @function_tool(needs_approval=True)
    def erase() -> str:
        """Erase it."""
        return "erased"

    session = await AgentsSession.open(engine, "s")
    script = [[function_call("erase", {}, call_id="call_e")], [assistant_message("Erased.")]]
    agent = Agent(
        name="eraser", instructions="Ask first.", model=ScriptedModel(script), tools=[erase]
    )
    asked = await Runner.run(agent, "Erase it.", **session.options())
    state = asked.to_state()
    state.approve(asked.interruptions[0])
    assert (await Runner.run(agent, state, **session.options())).final_output == "Erased."
    kinds = [one.get("type") or one.get("role") for one in await session.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    assert (await views(engine))[-1] == received(agent)[-1]


async def test_another_agent_takes_over_in_the_same_turn(engine: Engine) -> None:
    clerk = Agent(name="clerk", model=ScriptedModel([[assistant_message("Filed.")]]))
    to_clerk = [function_call("transfer_to_clerk", {}, call_id="call_t")]
    agent = reader([to_clerk], handoffs=[handoff(clerk)])
    session = await AgentsSession.open(engine, "s")
    assert await run("run", agent, "File it.", **session.options()) == "Filed."
    types = await types_of(engine)
    assert types.count("prompt:submit") == 1
    assert len(await views(engine)) == 2


# -- next to what a caller has --------------------------------------------------------------------


async def test_hooks_of_ones_own_are_called(engine: Engine) -> None:
    seen: list[str] = []

    class Mine(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append("agent")

        async def on_llm_start(self, context: Any, agent: Any, system: Any, items: Any) -> None:
            seen.append("llm")

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            seen.append("tool")

    session = await AgentsSession.open(engine, "s")
    await run(
        "run",
        reader([reads(1), [assistant_message("Read.")]]),
        "Read.",
        **session.options(hooks=Mine()),
    )
    assert seen == ["agent", "llm", "tool", "llm"]


@pytest.mark.parametrize("how", HOW)
async def test_with_its_agent_known_a_prompt_is_in_its_turn(engine: Engine, how: str) -> None:
    session = await AgentsSession.open(engine, "s")
    agent = reader([[assistant_message("one")], [assistant_message("two")]])
    for text in ("a", "b"):
        await run(how, agent, text, **session.options(agent))
    records = await records_of(engine)
    turns = {one.turn_id for one in records if one.type.startswith("context:message_added")}
    assert None not in turns
    assert len(turns) == 2
    begun = [decode_event(one) for one in records if one.type == "prompt:submit"]
    assert begun == [PromptSubmit(number=1, agent="reader"), PromptSubmit(number=2, agent="reader")]
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
    agent = reader([*LONG, [assistant_message("Page 3 it was.")]])
    with eventctx.sync.open(path) as engine:
        session = AgentsSession(engine.session("s", **SMALL))
        for text in ("Read all.", "Which one?"):
            Runner.run_sync(agent, text, **session.options(agent))
        assert asyncio.run(session.get_items())[-1]["role"] == "assistant"  # type: ignore[typeddict-item]

    async def look() -> None:
        async with eventctx.open(path) as engine:
            assert await views(engine) == received(agent)
            types = await types_of(engine)
            assert types[-1] == "prompt:complete"
            assert types.count("tool:pre") == types.count("tool:post") == 16

    asyncio.run(look())


def test_where_the_loop_of_the_engine_does_not_run_it_says_what_to_do(
    tmp_path: Path, default_loop: asyncio.AbstractEventLoop
) -> None:
    with asyncio.Runner() as loop:
        engine = loop.run(_opened(tmp_path / "agents.db"))
        session = loop.run(AgentsSession.open(engine, "s"))
        asyncio.set_event_loop(default_loop)
        try:
            with pytest.raises(InvalidSetting, match=r"eventctx\.sync\.open"):
                Runner.run_sync(reader([]), "Anybody?", **session.options())
            with pytest.raises(InvalidSetting, match="found no loop that runs"):
                AgentsSession(session.context)
        finally:
            loop.run(engine.close())


async def _opened(path: Path) -> Engine:
    return await eventctx.open(path)


# -- as storage alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
async def test_as_storage_alone_it_holds_what_the_sdks_own_session_holds(
    engine: Engine, how: str
) -> None:
    plain, ours = agents.SQLiteSession("plain"), await AgentsSession.open(engine, "s")
    for session in (plain, ours):
        agent = reader([*LONG, [assistant_message("yes")]])
        for text in ("Read all.", "yes"):
            await run(how, agent, text, session=session)
    assert await ours.get_items() == await plain.get_items()
    for limit in (None, -1, 0, 1, 3, 100):
        assert await ours.get_items(limit) == await plain.get_items(limit)
    assert await ours.pop_item() == await plain.pop_item()
    assert await ours.get_items() == await plain.get_items()
    await ours.clear_session()
    assert await ours.get_items() == []
    assert await ours.pop_item() is None


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


async def test_a_limit_of_items_holds_for_the_sdk_and_leaves_the_log_whole(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    agent = reader([[assistant_message(str(number))] for number in range(4)])
    limited = RunConfig(session_settings=SessionSettings(limit=2))
    for text in "abcd":
        await run("run", agent, text, **session.options(run_config=limited))
    assert [len(one.input) for one in calls(agent)] == [1, 3, 3, 3]
    assert len(await session.get_items()) == 8


async def test_an_engine_without_async_is_refused_with_what_to_write() -> None:
    with eventctx.sync.open("memory://") as engine:
        given: Any = engine
        with pytest.raises(InvalidSetting, match=r"AgentsSession\(engine\.session"):
            await AgentsSession.open(given, "s")
