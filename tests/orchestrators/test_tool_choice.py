"""Requests in which the model may call no tool, and our loops mounted in the kernel."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_core.message_models import ChatRequest
from amplifier_core.testing import MockContextManager

import eventctx
from eventctx import Context, Engine
from eventctx.log.codec import decode_event
from eventctx.log.events import RequestPrepared
from eventctx.orchestrators import (
    EventsOrchestrator,
    Ids,
    Request,
    StreamingOrchestrator,
    ToolDefinition,
)
from tests.orchestrators.agents import (
    Scripted,
    Streaming,
    Waits,
    activity,
    calls,
    check_log,
    pieces,
    records,
    says,
    tool,
    tools,
)
from tests.orchestrators.test_kernel import Module, Writes, hear, kernel
from tests.orchestrators.test_kernel import says as answers

LOOK = tools(tool("look"))


class Choosing(Scripted):
    takes_tool_choice = True


def sent(provider: Scripted) -> list[tuple[int, str | None]]:
    """Of each request the number of tools, and the choice."""
    return [(len(one.tools), one.tool_choice) for one in provider.requests]


async def test_a_plan_and_the_answer_at_the_limit_are_asked_for_with_the_tools(
    engine: Engine, ctx: Context
) -> None:
    provider = Choosing(says("first"), calls(("c1", "look")), says("done"))
    agent = EventsOrchestrator(planning=True, max_iterations=2)
    await agent.execute("go", ctx, {"p": provider}, LOOK)
    assert sent(provider) == [(1, "none"), (1, None), (1, "none")]
    prepared = [decode_event(one) for one in await records(engine)]
    digests = {one.tools_digest for one in prepared if isinstance(one, RequestPrepared)}
    assert len(digests) == 1
    assert None not in digests
    await check_log(engine)


async def test_nothing_is_chosen_where_there_are_no_tools() -> None:
    provider = Choosing(says("first"), says("done"))
    await EventsOrchestrator(planning=True).execute("go", MockContextManager(), {"p": provider})
    assert sent(provider) == [(0, None), (0, None)]


@pytest.mark.parametrize("retries", [0, 4])
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(calls(("c1", "look")), id="the model calls all the same"),
        pytest.param(
            eventctx.ProviderFailed("p", "Unknown parameter: 'tool_choice'.", status=400),
            id="the API refuses it",
        ),
    ],
)
async def test_where_the_choice_does_not_work_the_tools_are_withheld_for_the_turn(
    engine: Engine, ctx: Context, first: Any, retries: int
) -> None:
    provider = Choosing(first, says("plan"), calls(("c1", "look")), says("done"))
    agent = EventsOrchestrator(planning=True, max_iterations=2, max_retries=retries, sleep=Waits())
    response = await agent.execute("go", ctx, {"p": provider}, LOOK)
    assert (response.text, response.finish) == ("done", "iteration_limit")
    assert sent(provider) == [(1, "none"), (0, None), (1, None), (0, None)]
    found = await records(engine)
    assert activity(found)[:7] == [
        *("prompt:submit", "plan:start", "provider:request", "provider:error"),
        *("provider:request", "provider:response", "plan:end"),
    ]
    events = [decode_event(one) for one in found]
    known = [one.tools_digest is not None for one in events if isinstance(one, RequestPrepared)]
    assert known == [True, False, True, False]
    await check_log(engine)


async def test_a_provider_of_amplifier_gets_the_choice() -> None:
    module = Module(InvalidRequestError("tool_choice is not supported"), answers("a"), answers("b"))
    agent = EventsOrchestrator(planning=True, sleep=Waits())
    await agent.execute("go", MockContextManager(), {"p": module}, LOOK)
    asked: list[ChatRequest] = module.requests
    assert [one.tool_choice for one in asked] == ["none", None, None]
    assert [len(one.tools or ()) for one in asked] == [1, 0, 1]


def test_each_sdk_is_told_in_its_own_words() -> None:
    anthropic = pytest.importorskip("anthropic")
    openai = pytest.importorskip("openai")
    from eventctx.orchestrators import (
        AnthropicProvider,
        OpenAIChatProvider,
        OpenAIResponsesProvider,
    )

    theirs = openai.AsyncOpenAI(api_key="k")
    providers = {
        AnthropicProvider(anthropic.AsyncAnthropic(api_key="k"), "m"): {"type": "none"},
        OpenAIChatProvider(theirs, "m"): "none",
        OpenAIResponsesProvider(theirs, "m"): "none",
    }
    look = ToolDefinition("look", "looks", {"type": "object", "properties": {}})
    rows = [{"role": "user", "content": "hi"}]
    for provider, expected in providers.items():
        chosen = provider._arguments(Request(rows, Ids("s"), (look,), "none"))
        assert chosen["tool_choice"] == expected
        free = provider._arguments(Request(rows, Ids("s"), (look,)))
        assert "tool_choice" not in free
        assert free["tools"] == chosen["tools"]


# -- what the kernel shows of our loops when they are mounted --------------------------------------


async def test_basic_does_not_mount_in_a_plan_that_names_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = r"Cannot initialize without orchestrator: .*found tool-test: .*tools: ignore"
    with pytest.raises(RuntimeError, match=words):
        async with kernel(monkeypatch, MockContextManager(), Module(), loop="basic"):
            pass


async def test_basic_mounts_where_the_plan_says_to_ignore_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, tool = Module(answers("hello")), Writes()
    context = MockContextManager()
    async with kernel(monkeypatch, context, module, tool, "basic", tools="ignore") as session:
        assert await session.execute("hi") == "hello"
    assert tool.inputs == []
    assert [one.name for one in module.requests[0].tools or ()] == ["write"]
    assert module.requests[0].tool_choice == "none"


async def test_tools_that_the_plan_does_not_name_are_refused_at_the_first_execute(
    engine: Engine,
    ctx: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def mount(coordinator: Any, _: Any = None) -> None:
        await coordinator.mount("tools", Writes(), name="write")

    brings = ModuleType("brings")
    brings.mount = mount  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "amplifier_module_hooks_brings", brings)
    plan = {"tools": [], "hooks": [{"module": "hooks-brings"}]}
    async with kernel(monkeypatch, ctx, Module(), loop="basic", plan=plan) as session:
        with pytest.raises(RuntimeError, match=r"InvalidSetting.*found write: "):
            await session.execute("hi")
    assert activity(await records(engine)) == []


async def test_an_id_that_the_app_leaves_names_the_next_turn_and_no_other(
    engine: Engine,
    ctx: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Module(answers("a"), answers("b"))
    async with kernel(monkeypatch, ctx, module) as session:
        submitted = hear(session, "prompt:submit")
        session.coordinator.session_state["turn_id"] = "order-17-1"
        await session.execute("first")
        await session.execute("second")
    turns = {one.turn_id for one in await records(engine) if one.type == "prompt:submit"}
    assert submitted[0]["turn_id"] == "order-17-1"
    assert submitted[1]["turn_id"] not in (None, "order-17-1")
    assert turns == {one["turn_id"] for one in submitted}
    assert module.requests[0].metadata["turn_id"] == "order-17-1"  # type: ignore[index]


@pytest.mark.parametrize("wrong", ["", 7, "x" * 257, "a\nb"])
async def test_an_id_that_is_none_is_refused_before_the_turn_and_forgotten(
    engine: Engine, ctx: Context, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kernel(monkeypatch, ctx, Module(answers("a"))) as session:
        session.coordinator.session_state["turn_id"] = wrong
        with pytest.raises(RuntimeError, match="turn_id: expected"):
            await session.execute("go")
        assert activity(await records(engine)) == []
        assert await session.execute("go") == "a"


async def test_a_provider_that_does_not_take_a_choice_gets_no_tools() -> None:
    provider = Scripted(says("first"), says("done"))
    await EventsOrchestrator(planning=True).execute(
        "go", MockContextManager(), {"p": provider}, LOOK
    )
    assert sent(provider) == [(0, None), (1, None)]


async def test_the_streaming_one_asks_with_the_tools_at_its_limit() -> None:
    class ChoosingStream(Streaming):
        takes_tool_choice = True

    provider = ChoosingStream([calls(("c1", "look"))], pieces("done"))
    agent = StreamingOrchestrator(max_iterations=1)
    response = await agent.execute("go", MockContextManager(), {"p": provider}, LOOK)
    assert (response.text, response.finish) == ("done", "iteration_limit")
    assert sent(provider) == [(1, None), (1, "none")]
