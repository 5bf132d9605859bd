"""Failures of the OpenAI Agents SDK's runs: what failed is recorded as failed, with its type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

agents = pytest.importorskip("agents", reason="an extra: eventctx[openai-agents]")

from agents import (  # noqa: E402
    Agent,
    GuardrailFunctionOutput,
    Runner,
    function_tool,
    input_guardrail,
)
from agents.run import (  # noqa: E402
    AgentRunner,
    get_default_agent_runner,
    set_default_agent_runner,
)
from agents.testing import (  # noqa: E402
    ScriptedModel,
    assistant_message,
    function_call,
)

from eventctx.adapters.openai_agents import AgentsSession  # noqa: E402
from eventctx.engine import Engine, open_engine  # noqa: E402
from eventctx.log.codec import decode_known  # noqa: E402
from eventctx.log.record import Record  # noqa: E402

agents.set_tracing_disabled(True)

HOW = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
DONE = [assistant_message("done")]
ENDS = ("provider:response", "provider:error", "tool:post", "tool:error", "prompt:complete")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with open_engine("memory://") as opened:
        yield opened


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
