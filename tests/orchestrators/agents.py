"""A scripted provider, tools and hooks for the orchestrators, and checks of their logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from eventctx.engine import Engine
from eventctx.log.record import Record
from eventctx.orchestrators import (
    Answer,
    Chunk,
    Request,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
    Usage,
)

Step = Any
"""An Answer, an exception to raise, anything else to return as it is, or a function of these."""


class Scripted:
    """A provider of OpenAI chat messages that answers by a script and keeps its requests."""

    name = "scripted"
    model = "model-1"

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Any:
        self.requests.append(request)
        step = self.steps.pop(0)
        if callable(step) and not isinstance(step, type):
            step = await step(request)
        if isinstance(step, BaseException):
            raise step
        return step

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        return [{"name": one.name, "parameters": dict(one.parameters)} for one in tools]

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": outcome.call.id, "content": outcome.content}


class Streaming(Scripted):
    """Streams: every step is a list of chunks and, last, an answer or an exception."""

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        self.requests.append(request)
        for step in self.steps.pop(0):
            await asyncio.sleep(0)
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif callable(step):
                await step()
            elif isinstance(step, BaseException):
                raise step
            else:
                yield step


def says(text: str, usage: Usage | None = Usage(100, 5)) -> Answer:  # noqa: B008 - frozen
    return Answer({"role": "assistant", "content": text}, text, (), "stop", "r-1", "model-1", usage)


def calls(*wanted: tuple[str, str], arguments: dict[str, Any] | None = None) -> Answer:
    """An answer that calls tools: pairs of call id and tool name."""
    given = arguments or {}
    rows = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for call_id, name in wanted
    ]
    requests = tuple([ToolRequest(call_id, name, dict(given)) for call_id, name in wanted])
    message = {"role": "assistant", "content": None, "tool_calls": rows}
    return Answer(message, "", requests, "tool_calls", None, None, Usage(100, 5))


def pieces(*texts: str) -> list[Any]:
    """A streamed answer: a thought, the texts, and the whole of it."""
    whole = "".join(texts)
    return [
        Chunk("thinking", "hm"),
        *[Chunk("text", text, 1) for text in texts],
        says(whole),
    ]


class Doing:
    """A tool that does what a function does."""

    description = "does it"

    def __init__(self, name: str, function: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        self.name = name
        self._function = function

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002
        return await self._function(input)


def tool(name: str, result: Any = "fine") -> Doing:
    """A tool that returns ``result``, or raises it."""

    async def function(_: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        if isinstance(result, BaseException):
            raise result
        return result

    return Doing(name, function)


def tools(*given: Doing) -> dict[str, Doing]:
    return {one.name: one for one in given}


class Heard:
    """A hook that keeps the events that it received."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.events.append((event, data))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [data for event, data in self.events if event == name]


class Waits:
    """A sleep that takes no time and keeps the requested seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


ENDS = {
    "provider:request": ("provider:response", "provider:error"),
    "tool:pre": ("tool:post", "tool:error"),
    "plan:start": ("plan:end",),
    "prompt:submit": ("prompt:complete",),
}


HOOK_ENDS = ENDS | {
    "execution:start": ("execution:end",),
    "content_block:start": ("content_block:end",),
}
"""The events of which hooks alone hear, too."""


async def records(engine: Engine, session: str = "s") -> list[Record]:
    return [record async for record in engine.records(session)]


def activity(found: Sequence[Record]) -> list[str]:
    """Types of the activity records, without messages, requests and usage."""
    return [
        one.type for one in found if not one.type.startswith(("context:", "session:", "usage:"))
    ]


async def check_log(engine: Engine, session: str = "s") -> None:
    """The log verifies, every span that began ended once, and its view keeps calls and results."""
    context = await engine.session(session)
    await context.close()
    assert (await engine.verify(session)).problems == ()
    found = await records(engine, session)
    for begin, ends in ENDS.items():
        began = [one.span_id for one in found if one.type == begin]
        ended = [one.span_id for one in found if one.type in ends]
        assert sorted(map(str, began)) == sorted(map(str, ended)), begin
    paired(await context.get_messages_for_request())


def paired(messages: Sequence[dict[str, Any]]) -> None:
    """Assert that every call of these chat messages has one result directly behind it."""
    waiting: set[str] = set()
    for one in messages:
        if one["role"] == "tool":
            assert one["tool_call_id"] in waiting
            waiting.discard(one["tool_call_id"])
            continue
        assert not waiting, f"{waiting} have no result"
        waiting |= {call["id"] for call in one.get("tool_calls") or ()}
    assert not waiting
