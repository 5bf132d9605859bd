"""What the OpenAI Agents SDK stores in a session of ours, in cases of its own tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

agents = pytest.importorskip("agents", reason="an extra: eventctx[openai-agents]")
pytest.importorskip("cryptography", reason="an extra: eventctx[sign]")

from agents import (  # noqa: E402
    Agent,
    ModelSettings,
    RunConfig,
    RunHooks,
    Runner,
    ToolInputGuardrailTripwireTriggered,
    function_tool,
)
from agents.extensions.memory import EncryptedSession  # noqa: E402
from agents.testing import ScriptedModel, assistant_message, function_call  # noqa: E402
from agents.tool_guardrails import (  # noqa: E402
    ToolGuardrailFunctionOutput,
    tool_input_guardrail,
)
from openai.types.responses import ResponseReasoningItem  # noqa: E402

import eventctx  # noqa: E402
from eventctx.adapters.openai_agents import AgentsSession  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.errors import InvalidMessage  # noqa: E402


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


async def test_it_keeps_what_an_encrypting_session_stores_in_it(engine: Engine) -> None:
    plain = await AgentsSession.open(engine, "s")
    sealed = EncryptedSession("s", plain, encryption_key="a key of one's own")
    for text in ("Read one.", "yes"):
        agent = Agent(name="a", model=ScriptedModel([[assistant_message("Sealed.")]]))
        await Runner.run(agent, text, session=sealed)
    texts = [item.get("content") for item in await sealed.get_items()]
    assert texts[::2] == ["Read one.", "yes"]
    assert all("__enc__" in item and "type" not in item for item in await plain.get_items())
    assert "Sealed." in json.dumps(await sealed.pop_item())
    assert len(await sealed.get_items()) == 3


async def test_an_item_that_json_cannot_hold_is_refused_and_the_session_goes_on(
    engine: Engine,
) -> None:
    session = await AgentsSession.open(engine, "s")
    with pytest.raises(InvalidMessage, match=r"\$\.content: expected .* found a object"):
        await session.add_items(cast("list[Any]", [{"role": "user", "content": object()}]))
    session.options(Agent(name="a"))
    for odd in ([], 3, None):
        with pytest.raises(InvalidMessage):
            await session.add_items(cast("list[Any]", [odd]))
    with pytest.raises(InvalidMessage):
        await session.add_items(cast("list[Any]", [{"role": "user", "content": "x"}, 3]))
    assert await session.get_items() == []
    await session.add_items([{"role": "user", "content": "\U0001f600 \u202e" + "x" * 1_000_000}])
    (kept,) = await session.get_items()
    assert kept == {"role": "user", "content": "\U0001f600 \u202e" + "x" * 1_000_000}


async def test_items_added_at_once_are_all_kept(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    await asyncio.gather(
        *(
            session.add_items(
                [{"role": "user", "content": f"{at}"}, {"role": "assistant", "content": f"{at}"}]
            )
            for at in range(20)
        )
    )
    said = [cast("dict[str, Any]", item)["content"] for item in await session.get_items()]
    assert said[::2] == said[1::2]
    assert sorted(said[::2], key=int) == [str(at) for at in range(20)]


def thought(name: str) -> ResponseReasoningItem:
    return ResponseReasoningItem(id=name, type="reasoning", summary=[])


async def test_ids_of_reasoning_that_the_sdk_drops_are_not_sent(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    script = [[thought("rs_1"), assistant_message("Hm.")], [assistant_message("yes")]]
    model = ScriptedModel(script)
    agent = Agent(name="a", model=model)
    await Runner.run(agent, "Think.", **session.options())
    omit = RunConfig(reasoning_item_id_policy="omit")
    await Runner.run(agent, "Again.", **session.options(run_config=omit))
    (sent,) = [one for one in model.calls[1].input if one.get("type") == "reasoning"]
    assert "id" not in sent
    kept = cast("list[dict[str, Any]]", await session.get_items())
    assert [one["id"] for one in kept if one.get("type") == "reasoning"] == ["rs_1"]
    view = await engine.request_view("s", turn=2)
    assert view.verified
    row = (await engine.audit("s")).requests[-1]
    assert (row.additions, row.missing) == (1, 1)


async def test_reasoning_without_words_is_told_by_its_id(engine: Engine) -> None:
    """A call that a guardrail refused is not stored, nor the reasoning before it."""

    noted = asyncio.Event()

    class Hooks(RunHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            noted.set()

    @tool_input_guardrail
    async def refuse(data: Any) -> ToolGuardrailFunctionOutput:
        await noted.wait()
        return ToolGuardrailFunctionOutput.raise_exception()

    @function_tool(tool_input_guardrails=[refuse])
    def send() -> str:
        """Send it."""
        raise AssertionError("the guardrail refused it")

    @function_tool
    def note() -> str:
        """Note it."""
        return "noted"

    answer = [thought("rs_send"), function_call("send", {}, call_id="call_send")]
    answer += [thought("rs_note"), function_call("note", {}, call_id="call_note")]
    session = await AgentsSession.open(engine, "s")
    plain = agents.SQLiteSession("plain")
    for options in ({"session": plain, "hooks": Hooks()}, session.options(hooks=Hooks())):
        noted.clear()
        agent = Agent(
            name="a",
            model=ScriptedModel([answer]),
            tools=[send, note],
            model_settings=ModelSettings(tool_choice="required"),
        )
        with pytest.raises(ToolInputGuardrailTripwireTriggered):
            await Runner.run(agent, "go", **options)
    assert await session.get_items() == await plain.get_items()
    assert "rs_note" in json.dumps(await plain.get_items())
