"""Amplifier's own kernel with our loops, and a provider and a tool of its kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from amplifier_core import AmplifierSession, HookResult, ToolResult
from amplifier_core.message_models import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)

from tests.amplifier.hosts import mounting, session


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


def replies(text: str) -> ChatResponse:
    cached = {"cache_read_tokens": 60, "cache_write_tokens": 20}
    usage = Usage(input_tokens=100, output_tokens=5, total_tokens=105, **cached)
    return ChatResponse(content=[TextBlock(text=text)], usage=usage, finish_reason="end_turn")


def uses(call_id: str, name: str, **arguments: Any) -> ChatResponse:
    thought = ThinkingBlock(thinking="let me see", signature="sig==")
    return ChatResponse(
        content=[thought, ToolCallBlock(id=call_id, name=name, input=arguments)],
        tool_calls=[ToolCall(id=call_id, name=name, arguments=arguments)],
    )


class Writes:
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


def kernel(
    context: Any, module: Any, *tools: Any, loop: str = "events", **config: Any
) -> AbstractAsyncContextManager[AmplifierSession]:
    """A session of the kernel with our loop from its entry point, and these mounted next to it."""
    return session(
        module,
        *tools or [Writes()],
        loop=f"loop-eventctx-{loop}",
        loop_config=config,
        context="context-test",
        modules={"context-test": mounting("context", context)},
        session_id="s",
    )


def hear(host: AmplifierSession, name: str, answer: Any = None) -> list[dict[str, Any]]:
    """What a hook hears that gives this answer, or a function's."""
    heard: list[dict[str, Any]] = []

    async def handler(_: str, data: dict[str, Any]) -> HookResult:
        heard.append(data)
        return answer(data) if callable(answer) else answer or HookResult(action="continue")

    host.coordinator.hooks.register(name, handler)
    return heard
