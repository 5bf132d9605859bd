"""A scripted provider, tools and hooks for the orchestrators, and checks of their logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any

from eventctx import Context
from eventctx.log.record import Record
from eventctx.orchestrators import (
    Answer,
    Chunk,
    EventsOrchestrator,
    Request,
    Response,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
    Usage,
)
from eventctx.queries.verify import verify
from eventctx.testing import check_request
from tests.amplifier.given import ENDS, check_ends

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
    functions = [{"name": name, "arguments": json.dumps(given)} for _, name in wanted]
    rows = [
        {"id": call_id, "type": "function", "function": function}
        for (call_id, _), function in zip(wanted, functions, strict=True)
    ]
    requests = tuple([ToolRequest(call_id, name, dict(given)) for call_id, name in wanted])
    message = {"role": "assistant", "content": None, "tool_calls": rows}
    return Answer(message, "", requests, "tool_calls", None, None, Usage(100, 5))


def pieces(*texts: str) -> list[Any]:
    """A streamed answer: a thought, the texts, and the whole of it."""
    said = [Chunk("text", text, 1) for text in texts]
    return [Chunk("thinking", "hm"), *said, says("".join(texts))]


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


class CancelledAt:
    """Work in a task that is cancelled when it waits for the nth time."""

    def __init__(self, work: Awaitable[Any], number: int) -> None:
        self._work = work
        self._left = number

    def task(self) -> asyncio.Task[Any]:
        async def run() -> Any:
            return await self

        return asyncio.create_task(run())

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        waits = self._work.__await__()
        send: Callable[[], Any] = partial(waits.send, None)
        while True:
            try:
                waited = send()
            except StopIteration as done:
                return done.value
            self._left -= 1
            if self._left == 0:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited
                send = partial(waits.send, None)
            except BaseException as error:
                send = partial(waits.throw, error)


class Waits:
    """A sleep that takes no time and keeps the requested seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


async def go(
    context: Any,
    provider: Any,
    *given: Doing,
    hooks: Any = None,
    coordinator: Any = None,
    loop: Any = EventsOrchestrator,
    **settings: Any,
) -> Response:
    """A turn of an agent with these tools that does not wait between its attempts."""
    agent = loop(**{"sleep": Waits(), **settings})
    found: Response = await agent.execute(
        "go", context, {"p": provider}, tools(*given), hooks, coordinator=coordinator
    )
    return found


async def contents(context: Any) -> list[Any]:
    return [one["content"] for one in await context.get_messages()]


HOOK_ENDS = ENDS | {
    "execution:start": ("execution:end",),
    "content_block:start": ("content_block:end",),
}
"""The events of which hooks alone hear, too."""


async def records(ctx: Context, *types: str) -> list[Record]:
    """All of the session, or those of some types."""
    found = [one async for one in ctx._session.store.read(ctx.session_id)]
    return [one for one in found if one.type in types] if types else found


def activity(found: Sequence[Record]) -> list[str]:
    """Types of the activity records, without messages, requests and usage."""
    return [
        one.type for one in found if not one.type.startswith(("context:", "session:", "usage:"))
    ]


async def check_log(ctx: Context) -> None:
    """The log verifies, every span that began ended once, and its view keeps calls and results."""
    await ctx.close()
    assert (await verify(ctx._session.store, ctx.session_id)).problems == ()
    check_ends(await records(ctx))
    check_request(await ctx.get_messages_for_request())
