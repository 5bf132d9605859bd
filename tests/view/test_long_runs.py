"""Long runs on the SDKs' own clients, under a small budget: the provider refuses no request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final

import pytest

for name in ("anthropic", "openai"):
    pytest.importorskip(name, reason="extras: eventctx[anthropic], eventctx[openai]")

from anthropic import AsyncAnthropic  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402

from eventctx.engine import Engine, open_engine  # noqa: E402
from eventctx.orchestrators import (  # noqa: E402
    AnthropicProvider,
    BasicOrchestrator,
    EventsOrchestrator,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
    StreamingOrchestrator,
)
from eventctx.testing.strict_provider import strict_provider  # noqa: E402
from tests.how_much import some, tried  # noqa: E402
from tests.long_run import KINDS, PAGE, Kind, Model  # noqa: E402

TURNS: Final = some(12, 60)
SMALL: Final[dict[str, Any]] = {"max_tokens": 7_000, "reserve_tokens": 0}
SEARCH: Final = {"type": "web_search_20250305", "name": "web_search"}
PARAMETERS: Final = {"type": "object", "properties": {"page": {"type": "integer"}}}
NAMES: Final = ("read", "fail")
GPT: Final = "gpt-5.2"
WEB: Final = [{"type": "web_search"}]
ONCE: Final = partial(BasicOrchestrator, tools="ignore")

THINKING: Final[dict[str, dict[str, Any]]] = {
    "claude-haiku-4-5": {"type": "enabled", "budget_tokens": 1_024},
    "claude-opus-4-8": {"type": "adaptive"},
    "claude-sonnet-5-5": {"type": "adaptive"},
}

Ask = Callable[[str, Kind], Awaitable[None]]
Host = Callable[[Engine, str, AsyncExitStack, Model], Awaitable[Ask]]


def raw_claude(model: str) -> Host:
    tools: Any = [{"name": one, "input_schema": PARAMETERS} for one in NAMES]
    tools.append(SEARCH)

    async def host(engine: Engine, url: str, until: AsyncExitStack, script: Model) -> Ask:
        client = await until.enter_async_context(AsyncAnthropic(base_url=url, api_key="k"))
        ctx = await engine.session("s", **SMALL)

        async def ask(text: str, kind: Kind) -> None:
            await ctx.add_message({"role": "user", "content": text})
            while True:
                rows = await ctx.get_messages_for_request(tools=tools, model=model)
                answer = await client.messages.create(
                    model=model,
                    max_tokens=4_000,
                    tools=tools,
                    messages=rows,  # type: ignore[arg-type]
                    thinking=THINKING[model],  # type: ignore[arg-type]
                )
                await ctx.add_message(answer)
                if script.answers == kind.stops_after:
                    return
                calls = [block for block in answer.content if block.type == "tool_use"]
                if answer.stop_reason == "pause_turn":
                    continue
                if not calls:
                    return
                results = [claude_result(call) for call in calls]
                words = [{"type": "text", "text": "It is late."}]
                late = len(calls) > 1
                await ctx.add_message({"role": "user", "content": [*words * late, *results]})

        return ask

    return host


def claude_result(call: Any) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": call.id}
    if call.name == "fail":
        return {**result, "content": "", "is_error": True}
    return {**result, "content": PAGE}


async def raw_chat(engine: Engine, url: str, until: AsyncExitStack, script: Model) -> Ask:
    client = await until.enter_async_context(AsyncOpenAI(base_url=f"{url}/v1", api_key="k"))
    functions = [{"name": one, "parameters": PARAMETERS} for one in NAMES]
    tools: Any = [{"type": "function", "function": one} for one in functions]
    ctx = await engine.session("s", **SMALL)

    async def ask(text: str, kind: Kind) -> None:
        await ctx.add_message({"role": "user", "content": text})
        while True:
            rows: Any = await ctx.get_messages_for_request(tools=tools, model=GPT)
            answer = await client.chat.completions.create(model=GPT, tools=tools, messages=rows)
            await ctx.add_message(answer)
            calls = answer.choices[0].message.tool_calls or []
            if script.answers == kind.stops_after or not calls:
                return
            if len(calls) > 1:
                await ctx.add_message({"role": "user", "content": "It is late."})
            for call in calls:
                content = PAGE if call.function.name == "read" else ""  # type: ignore[union-attr]
                row = {"role": "tool", "tool_call_id": call.id, "content": content}
                await ctx.add_message(row)

    return ask


async def raw_responses(engine: Engine, url: str, until: AsyncExitStack, script: Model) -> Ask:
    client = await until.enter_async_context(AsyncOpenAI(base_url=f"{url}/v1", api_key="k"))
    functions = [{"type": "function", "name": one, "parameters": PARAMETERS} for one in NAMES]
    tools: Any = [*[{**one, "strict": False} for one in functions], *WEB]
    ctx = await engine.session("s", **SMALL)

    async def ask(text: str, kind: Kind) -> None:
        await ctx.add_message({"role": "user", "content": text})
        while True:
            rows: Any = await ctx.get_messages_for_request(tools=tools, model=GPT)
            answer = await client.responses.create(
                model=GPT,
                tools=tools,
                input=rows,
                store=False,
                include=["reasoning.encrypted_content"],
            )
            for item in answer.output:
                await ctx.add_message(item)
            calls = [item for item in answer.output if item.type == "function_call"]
            if script.answers == kind.stops_after or not calls:
                return
            for call in calls:
                output = PAGE if call.name == "read" else ""
                row = {"type": "function_call_output", "call_id": call.call_id, "output": output}
                await ctx.add_message(row)

    return ask


def fail(page: int) -> str:
    """Fail."""
    raise ValueError("torn")


def orchestrated(loop: Callable[[], Any], provider: Callable[[Any], Any], sdk: Any) -> Host:
    async def host(engine: Engine, url: str, until: AsyncExitStack, script: Model) -> Ask:
        base = url if sdk is AsyncAnthropic else f"{url}/v1"
        client = await until.enter_async_context(sdk(base_url=base, api_key="k"))
        providers = {"p": provider(client)}
        ctx = await engine.session("s", **SMALL)

        async def ask(text: str, kind: Kind) -> None:
            halted = asyncio.Event()

            async def read(page: int) -> str:
                """Read a page."""
                if script.answers == kind.stops_after:
                    halted.set()
                    await asyncio.Event().wait()
                return PAGE

            running = asyncio.ensure_future(loop().execute(text, ctx, providers, [read, fail]))
            waiting = asyncio.ensure_future(halted.wait())
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            if halted.is_set():
                running.cancel()
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await running

        return ask

    return host


def claude(model: str) -> Callable[[Any], Any]:
    return lambda client: AnthropicProvider(
        client, model, 4_000, thinking=THINKING[model], tools=[SEARCH]
    )


PROVIDERS: Final[dict[str, tuple[Callable[[Any], Any], Any]]] = {
    **{model: (claude(model), AsyncAnthropic) for model in THINKING},
    "chat": (lambda client: OpenAIChatProvider(client, GPT), AsyncOpenAI),
    "responses": (lambda client: OpenAIResponsesProvider(client, GPT, tools=WEB), AsyncOpenAI),
}
HOSTS: Final[dict[str, Host]] = {
    **{f"anthropic SDK, {model}": raw_claude(model) for model in THINKING},
    "openai SDK, chat": raw_chat,
    "openai SDK, responses": raw_responses,
    **{
        f"{loop.__name__}, {name}": orchestrated(loop, provider, sdk)
        for place, loop in enumerate((StreamingOrchestrator, EventsOrchestrator))
        for other, (name, (provider, sdk)) in enumerate(PROVIDERS.items())
        if tried(place, other, 0, choices=2)
    },
    **{
        # A loop that asks once, so that an answer which paused does not go on.
        f"BasicOrchestrator, {model}": orchestrated(ONCE, claude(model), AsyncAnthropic)
        for model in THINKING
    },
}


def kinds_for(host: str) -> list[Kind]:
    """The kinds of turns that a host's API and loop can have."""
    if host.startswith("Basic"):
        return [KINDS[name] for name in ("only thinks", "searches", "pauses")]
    kinds = [
        one for one in KINDS.values() if not (one.needs_server_tools and host.endswith("chat"))
    ]
    if host.endswith("responses"):
        kinds = [one for one in kinds if one.says is not KINDS["pauses"].says]
    return kinds


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
async def test_no_request_of_a_long_run_is_refused(host: str) -> None:
    kinds = kinds_for(host)
    words = "please " * (600 if host.startswith("Basic") else 20)
    model = Model()
    async with (
        open_engine("memory://") as engine,
        strict_provider(model) as server,
        AsyncExitStack() as until,
    ):
        ask = await HOSTS[host](engine, server.url, until, model)
        for number in range(TURNS):
            kind = kinds[number % len(kinds)]
            model.begin(kind, number)
            await ask(f"Question {number}: read and tell me. {words}", kind)
        audit = await engine.audit("s")
    assert server.refusals == []
    assert len(server.requests) >= TURNS
    assert len(audit.compactions) > 2
