"""Runs of the OpenAI Agents SDK: how each fails, agents that are tools, and what it stores."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

pytest.importorskip("agents", reason="an extra: eventctx[openai-agents]")

import agents
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    RunConfig,
    RunHooks,
    Runner,
    ToolInputGuardrailTripwireTriggered,
    function_tool,
    input_guardrail,
)
from agents.extensions.memory import EncryptedSession
from agents.run import (
    AgentRunner,
    get_default_agent_runner,
    set_default_agent_runner,
)
from agents.testing import (
    ScriptedModel,
    assistant_message,
    function_call,
)
from agents.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    tool_input_guardrail,
)
from openai.types.responses import ResponseReasoningItem

from eventctx.adapters.openai_agents import AgentsSession
from eventctx.engine import Engine
from eventctx.errors import InvalidMessage
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from tests.adapters.logs import links, names, types_of, views

agents.set_tracing_disabled(True)

HOW = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
DONE = [assistant_message("done")]
ENDS = ("provider:response", "provider:error", "tool:post", "tool:error", "prompt:complete")


@function_tool(failure_error_function=None)
async def burn() -> str:
    """Raise."""
    raise ValueError("disk on fire")


@function_tool
async def smoke() -> str:
    """Raise, of which the SDK makes a text."""
    raise ValueError("disk on fire")


@function_tool(timeout=0.01)
async def sleep() -> str:
    """Never return in time."""
    await asyncio.Event().wait()
    return "never"


@function_tool(timeout=0.01, timeout_behavior="raise_exception")
async def sleep_for_ever() -> str:
    """Never return in time."""
    await asyncio.Event().wait()
    return "never"


@function_tool
async def wait() -> str:
    """Wait until the run is over."""
    await asyncio.Event().wait()
    return "never"


def agent_of(*script: Any, tools: list[Any] | None = None, **more: Any) -> Agent[Any]:
    given = [burn, smoke, sleep, sleep_for_ever, wait] if tools is None else tools
    return Agent(name="a", model=ScriptedModel([*script]), tools=given, **more)


def call(name: str, call_id: str = "c1", **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


async def run(agent: Agent[Any], stream: bool, text: str = "hi", **options: Any) -> None:
    if not stream:
        await Runner.run(agent, text, **options)
        return
    async for _ in Runner.run_streamed(agent, text, **options).stream_events():
        pass


async def ran(engine: Engine, agent: Agent[Any], stream: bool, **more: Any) -> str | None:
    """Run the agent in session ``s``; the class of the exception that the caller got."""
    session = await AgentsSession.open(engine, "s")
    try:
        await run(agent, stream, **session.options(agent), **more)
    except Exception as error:
        return type(error).__name__
    return None


def _end(record: Record) -> tuple[str, str, str | None]:
    event: Any = decode_known(record)
    kind = getattr(event, "error_type", None) or getattr(event, "error", None)
    return record.type, getattr(event, "status", "ok"), kind and str(kind).partition(":")[0]


async def ends(engine: Engine, session: str = "s") -> list[tuple[str, str, str | None]]:
    """How each call, tool and turn of a session ended."""
    return [_end(one) async for one in engine.records(session) if one.type in ENDS]


def failed(kind: str) -> tuple[str, str, str]:
    return "prompt:complete", "error", kind


OK = ("provider:response", "ok", None)
OVER = ("prompt:complete", "ok", None)


@HOW
@pytest.mark.parametrize(
    ("tool", "raised", "kind"),
    [("burn", "UserError", "ValueError"), ("sleep_for_ever", "ToolTimeoutError", None)],
)
async def test_a_tool_that_ends_the_run_is_an_error_and_those_next_to_it_are_cancelled(
    engine: Engine, stream: bool, tool: str, raised: str, kind: str | None
) -> None:
    agent = agent_of([call("wait", "c0"), call(tool)])
    assert await ran(engine, agent, stream) == raised
    found = await ends(engine)
    assert found[0] == OK
    assert sorted(found[1:3]) == [
        ("tool:error", "cancelled", "CancelledError"),
        ("tool:error", "error", kind or raised),
    ]
    assert found[3:] == [failed(raised)]


@HOW
@pytest.mark.parametrize(("tool", "kind"), [("smoke", "ValueError"), ("sleep", "ToolTimeoutError")])
async def test_a_tool_whose_failure_the_model_is_told_is_an_error_in_a_turn_that_goes_on(
    engine: Engine, stream: bool, tool: str, kind: str
) -> None:
    assert await ran(engine, agent_of([call(tool)], DONE), stream) is None
    assert await ends(engine) == [OK, ("tool:error", "error", kind), OK, OVER]


@HOW
@pytest.mark.parametrize("parallel", [False, True])
async def test_a_guardrail_that_refused_the_input_fails_the_turn(
    engine: Engine, stream: bool, parallel: bool
) -> None:
    @input_guardrail(run_in_parallel=parallel)
    async def never(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    refused = await ran(engine, agent_of(DONE, input_guardrails=[never]), stream)
    assert refused == "InputGuardrailTripwireTriggered"
    *before, last = await ends(engine)
    assert last == failed(refused)
    assert {status for _, status, _ in before} <= {"ok", "cancelled"}


async def test_a_reader_that_stops_reading_did_not_fail_the_run(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    agent = agent_of(DONE)
    events = Runner.run_streamed(agent, "hi", **session.options(agent)).stream_events()
    async for _ in events:
        break
    await events.aclose()  # type: ignore[attr-defined]
    assert await ends(engine) == [OK, OVER]


async def test_a_runner_that_somebody_else_has_set_stays(engine: Engine) -> None:
    class Theirs(AgentRunner):
        pass

    before, theirs = get_default_agent_runner(), Theirs()
    set_default_agent_runner(theirs)
    try:
        assert await ran(engine, agent_of(DONE), False) is None
        assert get_default_agent_runner() is theirs
    finally:
        set_default_agent_runner(before)


# -- agents that are tools have linked sessions ---------------------------------------------------


agents.set_tracing_disabled(True)

ANSWER = [assistant_message("It is 4.")]


@function_tool
def look() -> str:
    """Look it up."""
    return "word " * 400


def helper(*script: list[Any]) -> tuple[ScriptedModel, Agent[Any]]:
    model = ScriptedModel([*script])
    return model, Agent(name="sub", instructions="Help.", model=model, tools=[look])


def asking(sub: Agent[Any], *calls: list[Any]) -> tuple[ScriptedModel, Agent[Any]]:
    model = ScriptedModel([*calls, ANSWER])
    tool = sub.as_tool("ask", "Ask the helper.")
    return model, Agent(name="main", instructions="Be brief.", model=model, tools=[tool])


def ask(call_id: str, text: str = "2+2?") -> Any:
    return function_call("ask", {"input": text}, call_id=call_id)


async def check_views(engine: Engine, session: str, model: ScriptedModel) -> None:
    """Check that this model received the verified views of a session, and nothing else."""
    sent = [
        [one for one in view if one.get("role") != "system"]
        for view in await views(engine, session)
    ]
    assert sent == [call.input for call in model.calls]


async def test_a_run_inside_a_tool_is_a_session_that_the_tools_call_is_linked_to(
    engine: Engine,
) -> None:
    inner, sub = helper([function_call("look", {}, call_id="k")], [assistant_message("four")])
    outer, main = asking(sub, [ask("c1")])
    session = await AgentsSession.open(engine, "s")
    await Runner.run(main, "Sum it up.", **session.options(main))
    assert await names(engine) == ["s", "s.c1"]
    await check_views(engine, "s", outer)
    await check_views(engine, "s.c1", inner)
    assert await links(engine, "s") == [("s.c1", "c1")]
    types = await types_of(engine)
    assert "tool:error" not in types
    assert "context:request_sent" not in types
    ended = await types_of(engine, "s.c1")
    assert ended[-1] == "prompt:complete"


async def test_runs_that_two_calls_of_one_answer_begin_are_told_apart(engine: Engine) -> None:
    looks = [[function_call("look", {}, call_id=f"k{n}")] for n in range(2)]
    _, sub = helper(*looks, [assistant_message("one")], [assistant_message("two")])
    outer, main = asking(sub, [ask("c1", "first?"), ask("c2", "second?")])
    session = await AgentsSession.open(engine, "s")
    await Runner.run(main, "Sum it up.", **session.options(main))
    assert await names(engine) == ["s", "s.c1", "s.c2"]
    await check_views(engine, "s", outer)
    for child, asked in (("s.c1", "first?"), ("s.c2", "second?")):
        audit = await engine.audit(child)
        assert len(audit.requests) == 2
        first = (await engine.transcript(child))[0].message
        assert first == {"role": "user", "content": asked}


async def test_the_same_agent_inside_itself_is_told_from_the_one_outside(engine: Engine) -> None:
    model = ScriptedModel([[ask("c1", "Sum it up.")], [assistant_message("four")], ANSWER])
    main = Agent(name="main", instructions="Be brief.", model=model)
    main.tools.append(main.as_tool("ask", "Ask yourself."))
    session = await AgentsSession.open(engine, "s")
    await Runner.run(main, "Sum it up.", **session.options(main))
    assert [len((await engine.audit(name)).requests) for name in ("s", "s.c1")] == [2, 1]


async def test_a_run_that_a_person_lets_go_on_inside_its_tool_is_still_the_sessions_own(
    engine: Engine,
) -> None:
    @function_tool(needs_approval=True)
    def erase() -> str:
        """Erase it."""
        return "erased"

    inner = ScriptedModel([[function_call("erase", {}, call_id="e")], [assistant_message("Done.")]])
    sub = Agent(name="sub", instructions="Help.", model=inner, tools=[erase])
    outer, main = asking(sub, [ask("c1")])
    session = await AgentsSession.open(engine, "s")
    stopped = await Runner.run(main, "Erase it.", **session.options(main))
    state = stopped.to_state()
    for one in stopped.interruptions:
        state.approve(one)
    result = await Runner.run(main, state, **session.options(main))
    assert result.final_output == "It is 4."
    await check_views(engine, "s", outer)


# -- what the SDK stores, in cases of its own tests ------------------------------------------------


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
