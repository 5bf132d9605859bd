"""The OpenAI Agents SDK on our sessions: what it stores, how runs fail, agents that are tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("agents", reason="an extra: eventctx[openai-agents]")

import agents
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelProvider,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    RunHooks,
    Runner,
    ToolInputGuardrailTripwireTriggered,
    function_tool,
    handoff,
    input_guardrail,
)
from agents.extensions.memory import EncryptedSession
from agents.memory import SessionSettings
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_guardrails import ToolGuardrailFunctionOutput, tool_input_guardrail
from openai.types.responses import ResponseReasoningItem

import eventctx
import eventctx.sync
from eventctx.adapters.openai_agents import AgentsSession
from eventctx.adapters.openai_agents.session import asked_of
from eventctx.engine import Engine
from eventctx.errors import InvalidMessage, InvalidSetting
from eventctx.log.codec import decode_known
from eventctx.testing import AdapterContract
from tests.adapters.drivers.base import KNOWN
from tests.adapters.drivers.openai_agents import (
    HOW,
    AgentsDriver,
    agent_of,
    approved,
    calls,
    erase,
    run,
)
from tests.adapters.logs import audited, count, links, names, payloads, records_of, types_of, views


class TestTheContract(AdapterContract):
    driver = AgentsDriver
    knows = KNOWN["OpenAI Agents SDK"]
    retries = "one call"


@function_tool
def read(page: int) -> str:
    return f"page {page}: " + "x" * 1_500


def call(name: str, call_id: str = "c1", **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


def reads(*pages: int) -> list[Any]:
    return [call("read", f"call_{page}", page=page) for page in pages]


LONG = [*[reads(page, page + 100) for page in range(8)], "All read."]


def received(agent: Agent[Any]) -> list[list[Any]]:
    """What the model received, the system prompt first."""
    system = {"role": "system"}
    return [[system | {"content": one.system_instructions}, *one.input] for one in calls(agent)]


async def test_a_call_that_waits_for_approval_is_stored_once(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    agent = agent_of([call("erase")], "Erased.", tools=[erase])
    assert await approved(agent, session) == "Erased."
    kinds = [one.get("type") or one.get("role") for one in await session.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    assert (await views(engine))[-1] == received(agent)[-1]


async def test_another_agent_takes_over_in_the_same_turn(engine: Engine) -> None:
    clerk = agent_of("Filed.", name="clerk")
    agent = agent_of([call("transfer_to_clerk")], handoffs=[handoff(clerk)])
    session = await AgentsSession.open(engine, "s")
    assert await run(agent, "File it.", **session.options()) == "Filed."
    assert await count(engine, "prompt:submit") == [1]
    assert len(await views(engine)) == 2


@HOW
async def test_of_a_known_agent_a_prompt_is_in_its_turn(engine: Engine, stream: bool) -> None:
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


@HOW
async def test_as_storage_it_holds_what_the_sdks_own_holds(engine: Engine, stream: bool) -> None:
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
    assert (await ours.get_items(), await ours.pop_item()) == ([], None)


async def test_a_limit_of_items_holds_for_the_sdk_and_leaves_the_log_whole(engine: Engine) -> None:
    session, agent = await AgentsSession.open(engine, "s"), agent_of(*"0123")
    limited = RunConfig(session_settings=SessionSettings(limit=2))
    for text in "abcd":
        await run(agent, text, **session.options(run_config=limited))
    assert [len(one.input) for one in calls(agent)] == [1, 3, 3, 3]
    assert len(await session.get_items()) == 8


OWN_NAMES = type("Elsewhere", (OpenAIProvider,), {})()
UNKNOWN = type("Unknown", (ModelProvider,), {"get_model": None})()


@pytest.mark.parametrize(
    ("model", "config", "provider"),
    [
        ("gpt-5.2", RunConfig(), "openai"),
        (None, RunConfig(), "openai"),
        ("openai/gpt-5.2", RunConfig(), "openai"),
        ("litellm/anthropic/claude-opus-5-5", RunConfig(), "anthropic"),
        ("any-llm/openrouter/openai/gpt-5.2", RunConfig(), "openrouter"),
        ("gpt-5.2", RunConfig(model_provider=OWN_NAMES), "openai"),
        ("gpt-5.2", RunConfig(model_provider=UNKNOWN), None),
        (ScriptedModel([]), RunConfig(), None),
    ],
)
def test_the_provider_is_the_one_that_the_sdk_takes_for_the_name_of_a_model(
    model: Any, config: RunConfig, provider: str | None
) -> None:
    asked = asked_of(Agent("a", model=model), config, streams=True)
    assert (asked.provider, asked.settings.stream) == (provider, True)


ENDS = ("provider:response", "provider:error", "tool:post", "tool:error", "prompt:complete")
OK = ("provider:response", "ok", None)
OVER = ("prompt:complete", "ok", None)


async def burn() -> str:
    raise ValueError("disk on fire")


async def wait() -> str:
    await asyncio.Event().wait()
    return "never"


TOOLS = [
    function_tool(burn, failure_error_function=None),
    function_tool(burn, name_override="smoke"),  # of whose error the SDK makes a text
    function_tool(wait),
    function_tool(wait, name_override="sleep", timeout=0.01),
    function_tool(
        wait, name_override="sleep_for_ever", timeout=0.01, timeout_behavior="raise_exception"
    ),
]


async def ran(engine: Engine, agent: Agent[Any], stream: bool) -> str | None:
    """Run the agent in session ``s``; the class of the exception that the caller got."""
    session = await AgentsSession.open(engine, "s")
    try:
        await run(agent, "hi", stream, **session.options(agent))
    except Exception as error:
        return type(error).__name__
    return None


async def ends(engine: Engine) -> list[tuple[str, str, str | None]]:
    """How each call, tool and turn of the session ended, and the type of its error."""
    found: list[tuple[str, str, str | None]] = []
    for one in await records_of(engine):
        if one.type in ENDS:
            event: Any = decode_known(one)
            kind = getattr(event, "error_type", None) or getattr(event, "error", None)
            kind = kind and str(kind).partition(":")[0]
            found.append((one.type, getattr(event, "status", "ok"), kind))
    return found


@HOW
@pytest.mark.parametrize(
    ("tool", "raised", "kind"),
    [("burn", "UserError", "ValueError"), ("sleep_for_ever", "ToolTimeoutError", None)],
)
async def test_a_tool_that_ends_the_run_is_an_error_and_those_next_to_it_are_cancelled(
    engine: Engine, stream: bool, tool: str, raised: str, kind: str | None
) -> None:
    agent = agent_of([call("wait", "c0"), call(tool)], tools=TOOLS)
    assert await ran(engine, agent, stream) == raised
    answered, *tools, last = await ends(engine)
    assert (answered, last) == (OK, ("prompt:complete", "error", raised))
    assert sorted(tools) == [
        ("tool:error", "cancelled", "CancelledError"),
        ("tool:error", "error", kind or raised),
    ]


@HOW
@pytest.mark.parametrize(("tool", "kind"), [("smoke", "ValueError"), ("sleep", "ToolTimeoutError")])
async def test_a_tool_whose_failure_the_model_is_told_is_an_error_in_a_turn_that_goes_on(
    engine: Engine, stream: bool, tool: str, kind: str
) -> None:
    assert await ran(engine, agent_of([call(tool)], "done", tools=TOOLS), stream) is None
    assert await ends(engine) == [OK, ("tool:error", "error", kind), OK, OVER]


@HOW
@pytest.mark.parametrize("parallel", [False, True])
async def test_a_refused_input_fails_the_turn(engine: Engine, stream: bool, parallel: bool) -> None:
    @input_guardrail(run_in_parallel=parallel)
    async def never(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    refused = await ran(engine, agent_of("done", input_guardrails=[never]), stream)
    assert refused == "InputGuardrailTripwireTriggered"
    *before, last = await ends(engine)
    assert last == ("prompt:complete", "error", refused)
    assert {status for _, status, _ in before} <= {"ok", "cancelled"}


async def test_a_reader_that_stops_reading_did_not_fail_the_run(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    agent = agent_of("done")
    events = Runner.run_streamed(agent, "hi", **session.options(agent)).stream_events()
    async for _ in events:
        break
    await events.aclose()  # type: ignore[attr-defined]
    assert await ends(engine) == [OK, OVER]


async def test_a_runner_that_somebody_else_has_set_stays(engine: Engine) -> None:
    before, theirs = get_default_agent_runner(), type("Theirs", (AgentRunner,), {})()
    set_default_agent_runner(theirs)
    try:
        assert await ran(engine, agent_of("done"), False) is None
        assert get_default_agent_runner() is theirs
    finally:
        set_default_agent_runner(before)


# -- agents that are tools have linked sessions ---------------------------------------------------


def look_up() -> str:
    return "word " * 400


def asking(sub: Agent[Any], *answers: list[Any]) -> Agent[Any]:
    """An agent whose tool is another one."""
    return agent_of(*answers, "It is 4.", name="main", tools=[sub.as_tool("ask", "Ask.")])


async def said_in(engine: Engine, session: str) -> list[list[Any]]:
    """What the verified views of a session show behind the system prompt."""
    seen = await views(engine, session)
    return [[one for one in view if one.get("role") != "system"] for view in seen]


async def test_runs_that_calls_of_one_answer_begin_are_linked_sessions(engine: Engine) -> None:
    looks, look = [[call("look_up", f"k{n}")] for n in range(2)], function_tool(look_up)
    sub = agent_of(*looks, "one", "two", name="sub", tools=[look])
    main = asking(sub, [call("ask", "c1", input="first?"), call("ask", "c2", input="second?")])
    session = await AgentsSession.open(engine, "s")
    await run(main, "Sum it up.", **session.options(main))
    assert await names(engine) == ["s", "s.c1", "s.c2"]
    assert sorted(await links(engine, "s")) == [("s.c1", "c1"), ("s.c2", "c2")]
    assert await said_in(engine, "s") == [one.input for one in calls(main)]
    inside = [await said_in(engine, child) for child in ("s.c1", "s.c2")]
    assert [len(one) for one in inside] == [2, 2]
    assert sorted(map(str, inside[0] + inside[1])) == sorted(str(one.input) for one in calls(sub))
    asked = [one[-1][0] for one in inside]
    assert asked == [{"role": "user", "content": one} for one in ("first?", "second?")]
    assert await count(engine, "tool:error", "context:request_sent") == [0, 0]
    assert (await types_of(engine, "s.c1"))[-1] == "prompt:complete"


async def test_the_same_agent_inside_itself_is_told_from_the_one_outside(engine: Engine) -> None:
    main = agent_of([call("ask", input="Sum it up.")], "four", "It is 4.", name="main")
    main.tools.append(main.as_tool("ask", "Ask yourself."))
    session = await AgentsSession.open(engine, "s")
    await run(main, "Sum it up.", **session.options(main))
    assert [len((await engine.audit(name)).requests) for name in ("s", "s.c1")] == [2, 1]


async def test_a_run_that_goes_on_inside_its_tool_is_the_sessions_own(engine: Engine) -> None:
    sub = agent_of([call("erase", "e")], "Done.", name="sub", tools=[erase])
    main = asking(sub, [call("ask", input="2+2?")])
    session = await AgentsSession.open(engine, "s")
    assert await approved(main, session) == "It is 4."
    assert await said_in(engine, "s") == [one.input for one in calls(main)]


# -- what the SDK stores, in cases of its own tests ------------------------------------------------


async def test_it_keeps_what_an_encrypting_session_stores_in_it(engine: Engine) -> None:
    plain = await AgentsSession.open(engine, "s")
    sealed = EncryptedSession("s", plain, encryption_key="a key of one's own")
    for text in ("Read one.", "yes"):
        await run(agent_of("Sealed."), text, session=sealed)
    texts = [item.get("content") for item in await sealed.get_items()]
    assert texts[::2] == ["Read one.", "yes"]
    assert all("__enc__" in item and "type" not in item for item in await plain.get_items())
    assert "Sealed." in json.dumps(await sealed.pop_item())
    assert len(await sealed.get_items()) == 3


async def test_an_item_that_is_no_json_is_refused_and_loses_nothing(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    said: Any = {"role": "user", "content": "\U0001f600 \u202e" + "x" * 1_000_000}
    with pytest.raises(InvalidMessage, match=r"\$\.content: expected .* found a object"):
        await session.add_items([{**said, "content": object()}])
    session.options(Agent(name="a"))
    odd: Any
    for odd in ([[]], [3], [None], [said, 3]):
        with pytest.raises(InvalidMessage):
            await session.add_items(odd)
    assert await session.get_items() == []
    await session.add_items([said])
    assert await session.get_items() == [said]


def thought(name: str) -> ResponseReasoningItem:
    return ResponseReasoningItem(id=name, type="reasoning", summary=[])


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

    send = function_tool(burn, name_override="send", tool_input_guardrails=[refuse])
    note = function_tool(look_up, name_override="note")
    answer = [thought("rs_send"), call("send", "c1"), thought("rs_note"), call("note", "c2")]
    session, plain = await AgentsSession.open(engine, "s"), agents.SQLiteSession("plain")
    for options in ({"session": plain, "hooks": Hooks()}, session.options(hooks=Hooks())):
        noted.clear()
        required = ModelSettings(tool_choice="required")
        with pytest.raises(ToolInputGuardrailTripwireTriggered):
            await run(agent_of(answer, tools=[send, note], model_settings=required), **options)
    assert await session.get_items() == await plain.get_items()
    assert "rs_note" in json.dumps(await plain.get_items())


async def test_ids_of_reasoning_that_the_sdk_drops_are_not_sent(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    agent = agent_of([thought("rs_1"), assistant_message("Hm.")], "yes")
    await run(agent, "Think.", **session.options())
    omit = RunConfig(reasoning_item_id_policy="omit")
    await run(agent, "Again.", **session.options(run_config=omit))
    (sent,) = [one for one in calls(agent)[1].input if one.get("type") == "reasoning"]
    assert "id" not in sent
    kept = cast("list[dict[str, Any]]", await session.get_items())
    assert [one["id"] for one in kept if one.get("type") == "reasoning"] == ["rs_1"]
    assert (await engine.request_view("s", turn=2)).verified
    assert (await audited(engine))[-1] == (1, 1)
