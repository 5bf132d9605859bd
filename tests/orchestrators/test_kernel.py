"""The orchestrators mounted in Amplifier's own kernel, with its providers, tools and hooks."""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from amplifier_core import AmplifierSession, HookResult, ToolResult
from amplifier_core.llm_errors import ContextLengthError, RateLimitError
from amplifier_core.message_models import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from amplifier_core.testing import EventRecorder, MockContextManager, MockTool
from amplifier_core.validation import OrchestratorValidator

import eventctx
from eventctx import Context, Engine
from eventctx.log.codec import decode_event
from eventctx.log.record import Body
from eventctx.orchestrators import BasicOrchestrator, EventsOrchestrator, StreamingOrchestrator
from eventctx.orchestrators.loops.mounting import MountedOrchestrator
from eventctx.session.settings import UnknownSetting
from tests.orchestrators.agents import Waits, activity, check_log, records

ROOT = Path(__file__).resolve().parents[2]
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
    "amplifier.modules"
]
OURS = {name: target for name, target in POINTS.items() if name.startswith("loop-eventctx-")}


class Module:
    """A provider module of Amplifier that answers by a script."""

    name = "scripted"

    def __init__(self, *steps: Any, priority: int = 100) -> None:
        self.steps = list(steps)
        self.priority = priority
        self.requests: list[ChatRequest] = []

    def get_info(self) -> Any:
        return None

    async def complete(self, request: ChatRequest, **_: Any) -> Any:
        self.requests.append(request)
        step = self.steps.pop(0)
        if callable(step):
            step = await step()
        if isinstance(step, BaseException):
            raise step
        return step


def says(text: str) -> ChatResponse:
    usage = Usage(
        input_tokens=100,
        output_tokens=5,
        total_tokens=105,
        cache_read_tokens=60,
        cache_write_tokens=20,
    )
    return ChatResponse(content=[TextBlock(text=text)], usage=usage, finish_reason="end_turn")


def calls(call_id: str, name: str, **arguments: Any) -> ChatResponse:
    return ChatResponse(
        content=[
            ThinkingBlock(thinking="let me see", signature="sig=="),
            ToolCallBlock(id=call_id, name=name, input=arguments),
        ],
        tool_calls=[ToolCall(id=call_id, name=name, arguments=arguments)],
    )


class Writes:
    """An Amplifier tool module."""

    name = "write"
    description = "writes"
    input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}  # noqa: RUF012

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.success = True
        self.then: Callable[[], Any] = lambda: None

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002
        self.inputs.append(input)
        self.then()
        await asyncio.sleep(0)
        return ToolResult(success=self.success, output={"wrote": input.get("text")})


@asynccontextmanager
async def kernel(
    monkeypatch: pytest.MonkeyPatch,
    context: Any,
    module: Module,
    tool: Any = None,
    loop: str = "events",
    plan: dict[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[AmplifierSession]:
    """A session of the kernel with our loop from its entry point, and these mounted next to it.

    ``plan`` replaces parts of the mount plan, ``config`` is the loop's.
    """
    points = [
        importlib.metadata.EntryPoint(name, target, "amplifier.modules")
        for name, target in POINTS.items()
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: points)

    def mounting(place: str, thing: Any, name: str | None = None) -> ModuleType:
        async def mount(coordinator: Any, _: Any = None) -> None:
            await coordinator.mount(place, thing, name=name)

        made = ModuleType(place)
        made.mount = mount  # type: ignore[attr-defined]
        return made

    given = tool or Writes()
    mounted: dict[str, Any] = {"module": "context-test"}
    if isinstance(context, tuple):
        mounted = {"module": context[0], "config": context[1]}
    for name, made in {
        "context_test": mounting("context", context),
        "provider_test": mounting("providers", module, "scripted"),
        "tool_test": mounting("tools", given, given.name),
    }.items():
        monkeypatch.setitem(sys.modules, f"amplifier_module_{name}", made)
    session = AmplifierSession(
        {
            "session": {
                "orchestrator": {"module": f"loop-eventctx-{loop}", "config": config},
                "context": mounted,
            },
            "providers": [{"module": "provider-test"}],
            "tools": [{"module": "tool-test"}],
            **(plan or {}),
        },
        session_id="s",
    )
    await session.initialize()
    try:
        yield session
    finally:
        await session.cleanup()


def hear(session: AmplifierSession, name: str, answer: Any = None) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []

    async def handler(_: str, data: dict[str, Any]) -> HookResult:
        heard.append(data)
        return answer(data) if callable(answer) else answer or HookResult(action="continue")

    session.coordinator.hooks.register(name, handler)
    return heard


@pytest.mark.parametrize("loop", ["basic", "streaming", "events"])
async def test_the_kernel_runs_a_turn_of_each(
    engine: Engine, ctx: Context, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Module(says("hello"))
    config = {"tools": "ignore"} if loop == "basic" else {}
    async with kernel(monkeypatch, ctx, module, loop=loop, **config) as session:
        submitted, completed = hear(session, "prompt:submit"), hear(session, "prompt:complete")
        blocks = hear(session, "content_block:end")
        assert await session.execute("hi") == "hello"
    assert activity(await records(engine)) == [
        *("prompt:submit", "provider:request", "provider:response", "prompt:complete")
    ]
    (began,), (ended,) = submitted, completed
    assert began["session_id"] == ended["session_id"] == "s"
    assert began["turn_id"] == ended["turn_id"]
    assert began["span_id"] == (await records(engine))[1].span_id
    assert [one["block"]["text"] for one in blocks] == ["hello"]
    asked = module.requests[0]
    assert asked.metadata is not None
    assert asked.metadata["turn_id"] == began["turn_id"]
    assert len(asked.metadata["span_id"]) == 16
    used = [one for one in await records(engine) if one.type == "usage:reported"]
    # Amplifier's input has what was read from the cache and not what was written to it.
    assert [decode_event(one).prompt for one in used] == [120]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", sorted(OURS))
async def test_amplifiers_validator_accepts_each(name: str) -> None:
    module = OURS[name].partition(":")[0]
    result = await OrchestratorValidator().validate(module)
    assert result.passed, [one.message for one in result.checks if not one.passed]


async def test_amplifier_tools_run_and_thinking_goes_back_as_it_came(
    engine: Engine,
    ctx: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool, module = Writes(), Module(calls("c1", "write", text="x"), says("done"))
    async with kernel(monkeypatch, ctx, module, tool) as session:
        pre, post = hear(session, "tool:pre"), hear(session, "tool:post")
        requested = hear(session, "provider:request")
        assert await session.execute("go") == "done"
    transcript = await ctx.get_messages()
    assert transcript[1]["content"][0]["signature"] == "sig=="
    assert transcript[1]["tool_calls"] == [
        {"id": "c1", "tool": "write", "arguments": {"text": "x"}}
    ]
    assert transcript[2] == {
        "role": "tool",
        "tool_call_id": "c1",
        "name": "write",
        "content": '{"wrote": "x"}',
    }
    sent = module.requests[1].messages[1].content
    assert sent[0].model_dump() == transcript[1]["content"][0]
    assert module.requests[0].tools[0].parameters == tool.input_schema
    assert pre[0]["tool_input"] == {"text": "x"}
    assert post[0]["result"]["output"] == {"wrote": "x"}
    assert pre[0]["parent_span_id"] == requested[0]["span_id"]
    assert pre[0]["tool_call_id"] == "c1"
    assert [one["iteration"] for one in requested] == [1, 2]
    await check_log(engine)


async def test_a_hook_of_the_kernel_may_deny_a_prompt(
    engine: Engine, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kernel(monkeypatch, ctx, Module()) as session:
        hear(session, "prompt:submit", HookResult(action="deny", reason="not now"))
        assert await session.execute("go") == "Operation denied: not now"
    assert await ctx.get_messages() == []
    assert activity(await records(engine)) == ["prompt:submit", "prompt:complete"]


async def test_a_hook_of_the_kernel_may_deny_a_tool_call(
    engine: Engine, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, module = Writes(), Module(calls("c1", "write"), says("then not"))
    async with kernel(monkeypatch, ctx, module, tool) as session:
        hear(session, "tool:pre", HookResult(action="deny", reason="read only"))
        errors = hear(session, "tool:error")
        assert await session.execute("go") == "then not"
    assert tool.inputs == []
    assert "read only" in (await ctx.get_messages())[2]["content"]
    assert errors[0]["error"]["type"] == "ToolFailed"
    await check_log(engine)


async def test_a_hook_of_the_kernel_may_change_a_tools_input_and_result(
    ctx: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool, module = Writes(), Module(calls("c1", "write", text="secret"), says("ok"))
    async with kernel(monkeypatch, ctx, module, tool) as session:
        hear(
            session,
            "tool:pre",
            lambda data: HookResult(action="modify", data={**data, "tool_input": {"text": "…"}}),
        )
        hear(
            session,
            "tool:post",
            lambda data: HookResult(action="modify", data={**data, "result": "hidden"}),
        )
        await session.execute("go")
    assert tool.inputs == [{"text": "…"}]
    assert (await ctx.get_messages())[2]["content"] == "hidden"


async def test_what_a_hook_of_the_kernel_injects_is_stored_or_sent_once(
    ctx: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Module(says("ok"))
    async with kernel(monkeypatch, ctx, module) as session:
        hear(
            session,
            "prompt:submit",
            HookResult(action="inject_context", context_injection="stays"),
        )
        hear(
            session,
            "provider:request",
            HookResult(
                action="inject_context",
                context_injection="goes",
                ephemeral=True,
                context_injection_role="user",
            ),
        )
        await session.execute("go")
    sent = [one.content for one in module.requests[0].messages]
    assert sent == ["stays", "go", "goes"]
    assert [one["content"] for one in await ctx.get_messages()][:2] == ["stays", "go"]


async def test_what_hooks_inject_after_a_tool_is_sent_with_the_next_request_alone(
    engine: Engine,
    ctx: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = RateLimitError("busy", retry_after=0.0)
    module = Module(calls("c1", "write"), busy, calls("c2", "write"), says("ok"))
    first = HookResult(action="inject_context", context_injection="look", ephemeral=True)
    second = HookResult(
        action="inject_context",
        context_injection="mind the gap",
        ephemeral=True,
        append_to_last_tool_result=True,
    )
    results = [first, second]
    agent = MountedOrchestrator(EventsOrchestrator(sleep=Waits()))
    async with kernel(monkeypatch, ctx, module) as session:
        await session.coordinator.mount("orchestrator", agent)
        nothing = HookResult(action="continue")
        answers = iter([*results, nothing, nothing])
        hear(session, "tool:post", lambda _: next(answers))
        hear(session, "tool:post", lambda _: next(answers))
        assert await session.execute("go") == "ok"
    sent = [[str(one.content) for one in request.messages] for request in module.requests]
    for request in sent[1:3]:
        assert request[-1] == "look"
        assert request[-2].endswith("\n\nmind the gap")
    assert not any("look" in text or "gap" in text for text in sent[3])
    # What was sent besides is in the log, for each of the two attempts.
    found = [decode_event(one) for one in await records(engine) if "request_sent" in one.type]
    assert [(one.messages, one.missing) for one in found] == [(4, 1)] * 2  # type: ignore[union-attr]
    bodies = [
        [body.data async for body in _bodies(engine, position)]
        for position in [
            one.position for one in await records(engine) if "request_sent" in one.type
        ]
    ]
    assert b'"look"' in b"".join(bodies[0])
    assert bodies[1] == []  # the same texts, by reference
    assert len(await ctx.get_messages()) == 6


async def _bodies(engine: eventctx.Engine, position: int) -> AsyncIterator[Body]:
    async for record in engine.records("s", position, position, bodies=True):
        for body in record.bodies:
            yield body


async def test_a_request_that_amplifier_calls_too_long_is_compacted_once(
    engine: Engine, ctx: Context
) -> None:
    module = Module(ContextLengthError("too many tokens"), says("ok"))
    for number in range(40):
        await ctx.add_message({"role": "user", "content": f"{number} " + "x" * 400})
        await ctx.add_message({"role": "assistant", "content": "y" * 400})
    recorder = EventRecorder()
    agent = EventsOrchestrator(sleep=Waits())
    assert (await agent.execute("go", ctx, {"p": module}, None, recorder)).text == "ok"
    first, second = [len(one.messages) for one in module.requests]
    assert second < first
    ((_, pre),) = recorder.get_events("context:pre_compact")
    ((_, post),) = recorder.get_events("context:post_compact")
    assert pre["span_id"] == post["span_id"]
    assert post["removed_tokens"] == post["before_tokens"] - post["after_tokens"] > 0
    assert pre["turn_id"] == recorder.get_events("prompt:submit")[0][1]["turn_id"]
    await check_log(engine)


@pytest.mark.parametrize("kind", [BasicOrchestrator, StreamingOrchestrator, EventsOrchestrator])
async def test_each_runs_without_the_kernel_on_a_context_that_records_nothing(kind: Any) -> None:
    context, recorder = MockContextManager(), EventRecorder()
    basic = kind is BasicOrchestrator
    steps = [] if basic else [calls("c1", "mock_tool")]
    module = Module(*steps, says("ok"))
    response = await kind(**{"tools": "ignore"} if basic else {}).execute(
        "go", context, {"p": module}, {"mock_tool": MockTool()}, recorder
    )
    assert response.text == "ok"
    roles = [one["role"] for one in context.messages]
    assert roles == (["user", "assistant", "tool", "assistant"] if steps else ["user", "assistant"])
    spans = {data["span_id"] for _, data in recorder.get_events("provider:request")}
    assert len(spans) == len(module.requests)
    assert {data["turn_id"] for _, data in recorder.events} == {response.turn_id}


async def test_the_provider_of_the_lowest_priority_number_is_asked_or_the_one_that_is_named() -> (
    None
):
    first, second = Module(says("a"), says("a"), priority=50), Module(says("b"), priority=60)
    providers = {"second": second, "first": first}
    context = MockContextManager()
    assert (await BasicOrchestrator().execute("go", context, providers)).text == "a"
    named = BasicOrchestrator(provider="second")
    assert (await named.execute("go", context, providers)).text == "b"


async def test_settings_of_a_mount_plan_are_checked(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="max_iterations: expected an int from 1"):
        async with kernel(monkeypatch, ctx, Module(), max_iterations="many"):
            pass
    with pytest.warns(UnknownSetting, match="extended_thinking"):
        async with kernel(
            monkeypatch, ctx, Module(says("ok")), max_iterations=-1, extended_thinking=True
        ) as session:
            assert await session.execute("go") == "ok"
