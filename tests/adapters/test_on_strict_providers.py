"""Real loops on the SDKs' own clients, under a small budget: the provider refuses no request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

for name in ("agents", "pydantic_ai", "openai", "anthropic"):
    pytest.importorskip(name, reason="extras: eventctx[openai-agents], eventctx[pydantic-ai]")

import agents  # noqa: E402
from agents import ModelSettings, OpenAIResponsesModel, Runner, function_tool  # noqa: E402
from pydantic_ai import Agent, ModelRetry, Tool  # noqa: E402
from pydantic_ai.messages import repair_messages  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponses  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

from eventctx.adapters.openai_agents import AgentsSession  # noqa: E402
from eventctx.adapters.pydantic_ai import Eventctx  # noqa: E402
from eventctx.engine import Engine, open_engine  # noqa: E402
from eventctx.queries.spans import spans  # noqa: E402
from eventctx.testing.strict_provider import strict_provider  # noqa: E402
from tests.how_much import some  # noqa: E402
from tests.long_run import KINDS, Model  # noqa: E402
from tests.orchestrators.providers.server import claude_client, openai_client  # noqa: E402

agents.set_tracing_disabled(True)

TURNS = some(5, 12)
SMALL: dict[str, Any] = {"max_tokens": 6_000, "reserve_tokens": 0}
Ask = Callable[[str], Awaitable[Any]]


def read(page: int) -> str:
    return f"page {page}: " + "words " * 250


async def of_openai_agents(engine: Engine, client: Any) -> Ask:
    def fail(page: int) -> str:
        raise ValueError("torn")

    model = OpenAIResponsesModel("gpt-5.2", client)
    settings = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
    tools: list[Any] = [function_tool(read), function_tool(fail)]
    agent = agents.Agent(name="a", model=model, tools=tools, model_settings=settings)
    session = await AgentsSession.open(engine, "s", **SMALL)
    return lambda text: Runner.run(agent, text, **session.options(agent))


def of_pydantic(engine: Engine, model: Any, **settings: Any) -> Ask:
    def fail(page: int) -> str:
        raise ModelRetry("torn")

    ours = Eventctx(engine, "s", recall=False, **SMALL)
    tools = [Tool(read), Tool(fail, max_retries=9)]
    agent = Agent(model, tools=tools, capabilities=[ours], model_settings=settings or None)  # type: ignore[arg-type]

    async def ask(text: str) -> None:
        await agent.run(text, message_history=repair_messages(await ours.history("s")))

    return ask


async def of_pydantic_responses(engine: Engine, client: Any) -> Ask:
    provider = OpenAIProvider(openai_client=client)
    return of_pydantic(engine, PydanticResponses("gpt-5.2", provider=provider))


async def of_pydantic_claude(engine: Engine, client: Any) -> Ask:
    provider = AnthropicProvider(anthropic_client=client)
    settings = {"anthropic_thinking": {"type": "adaptive"}, "max_tokens": 4_000}
    return of_pydantic(engine, AnthropicModel("claude-opus-5-5", provider=provider), **settings)


@pytest.mark.parametrize("host", [of_openai_agents, of_pydantic_responses, of_pydantic_claude])
async def test_no_request_of_a_long_run_is_refused(host: Callable[..., Awaitable[Ask]]) -> None:
    model, of_claude = Model(), host is of_pydantic_claude
    kinds = [KINDS[name] for name in ("loops", "thinks once")]
    async with open_engine("memory://") as engine, strict_provider(model) as server:
        url = server.url
        async with claude_client(url) if of_claude else openai_client(f"{url}/v1") as client:
            ask = await host(engine, client)
            for number in range(TURNS):
                model.begin(kinds[number % len(kinds)], number)
                await ask(f"Question {number}: read and tell me. " + "please " * 20)
        assert len(server.requests) > 3 * TURNS
        assert server.refusals == []
        assert len((await engine.audit("s")).compactions) > 2
        chats = [
            one.attributes
            async for one in spans(engine.store, "s")
            if one.name.startswith("chat ") and "eventctx.request.seq" in one.attributes
        ]
        providers = {one["gen_ai.provider.name"] for one in chats}
        assert providers == {"anthropic" if of_claude else "openai"}
        assert {f"http://{one['server.address']}:{one['server.port']}" for one in chats} == {url}
