"""What an API did to a conversation by itself is in the log, and views, why and lost follow it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

import eventctx
from eventctx import Engine
from eventctx.messages.parts import brings_compaction
from eventctx.orchestrators import AnthropicProvider, OpenAIResponsesProvider, StreamingOrchestrator
from eventctx.testing import Reply
from eventctx.testing.strict_provider import StrictServer, strict_provider
from tests.orchestrators.providers.server import claude_client, openai_client

Rows = list[dict[str, Any]]

QUESTIONS = (
    "Name the parts of the recipe app, and never rename the table Zutaten.",
    "Which of them comes first?",
    "And what after that?",
    "Is that all?",
)
SUMMARY = f"A recipe app. They said: {QUESTIONS[0]}"
SCRIPT = ["A table.", Reply("Recipe first.", compaction=SUMMARY), "Then Step.", "Yes."]
BEFORE = 3
"""Messages before the answer with the summary; before OpenAI's item a person's words stay."""

Ask = Callable[[Rows], Any]


def of_claude(client: anthropic.AsyncAnthropic, streamed: bool) -> Ask:
    edits: Any = {"edits": [{"type": "compact_20260112"}]}
    given: Any = {"model": "claude-opus-5-5", "max_tokens": 900, "context_management": edits}

    async def ask(rows: Rows) -> Rows:
        asked: Any = {**given, "messages": rows, "betas": ["compact-2026-01-12"]}
        if streamed:
            async with client.beta.messages.stream(**asked) as stream:
                answer = await stream.get_final_message()
        else:
            answer = await client.beta.messages.create(**asked)
        return [{"role": "assistant", "content": [one.to_dict() for one in answer.content]}]

    return ask


def of_openai(client: openai.AsyncOpenAI, streamed: bool) -> Ask:
    managed: Any = [{"type": "compaction", "compact_threshold": 1_000}]

    async def ask(rows: Rows) -> Rows:
        asked: Any = {"model": "gpt-6-sol", "input": rows, "context_management": managed}
        if streamed:
            async with client.responses.stream(store=False, **asked) as stream:
                answer: Any = await stream.get_final_response()
        else:
            answer = await client.responses.create(store=False, **asked)
        return [one.to_dict(warnings=False) for one in answer.output]

    return ask


def client_of(api: str, server: StrictServer) -> Any:
    if api == "claude":
        return claude_client(server.url, max_retries=0)
    return openai_client(f"{server.url}/v1", max_retries=0)


@asynccontextmanager
async def wrapped(
    api: str, engine: Engine, server: StrictServer, **settings: Any
) -> AsyncIterator[Any]:
    async with client_of(api, server) as client:
        yield eventctx.wrap(client, engine, "s", **settings)


async def talk(ask: Ask, *, drops: bool = False) -> None:
    """A conversation; ``drops``: the caller leaves out what the API summarised."""
    rows: Rows = []
    for question in QUESTIONS:
        rows.append({"role": "user", "content": question})
        said = await ask(rows)
        rows = said if drops and brings_compaction(said[0]) else rows + said


def sent(server: StrictServer) -> list[Rows]:
    return [one.body.get("messages") or one.body["input"] for one in server.requests]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_what_the_api_summarised_is_out_of_view_and_in_the_transcript(
    engine: Engine, api: str, streamed: bool
) -> None:
    async with strict_provider(SCRIPT) as server, wrapped(api, engine, server) as client:
        await talk((of_claude if api == "claude" else of_openai)(client, streamed))
        assert server.refusals == []
    rows = await (await engine.session("s")).get_messages()
    assert [one["content"] for one in rows if one.get("role") == "user"] == list(QUESTIONS)
    gone = await engine.why("s", 1)
    assert (gone.standing, gone.ruling and gone.ruling.reason) == ("summarised", "provider")
    assert (gone.into, gone.into_in_view) == (BEFORE, True)
    held = await engine.why("s", BEFORE)
    assert held.in_view and held.stays is not None and held.stays.reason == "provider_summary"
    # The caller sends all of it again, as the API allows; the log knows what is read of that.
    assert (await engine.request_view("s", turn=3)).messages == sent(server)[2]
    assert sent(server)[2][0] == {"role": "user", "content": QUESTIONS[0]}
    read = (await engine.audit("s")).requests[2]
    assert (read.counts.summarised, read.counts.kept) == ((3, 2) if api == "claude" else (1, 5))
    assert [row.trigger for row in (await engine.audit("s")).compactions] == ["provider"]
    assert (await engine.verify("s")).ok


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_the_transcript_keeps_what_a_caller_leaves_out_after_a_summary(
    engine: Engine, api: str, compact: bool
) -> None:
    async with strict_provider(SCRIPT) as server:
        async with wrapped(api, engine, server, compact=compact) as client:
            await talk((of_claude if api == "claude" else of_openai)(client, False), drops=True)
        assert server.refusals == []
    rows = await (await engine.session("s")).get_messages()
    assert [one["content"] for one in rows if one.get("role") == "user"] == list(QUESTIONS)
    assert (await engine.why("s", 1)).standing == "summarised"
    types = [one.type async for one in engine.records("s")]
    assert "context:messages_set" not in types
    assert await engine.hook_failures() == ()


async def test_a_compaction_that_the_caller_asks_for_is_known(engine: Engine) -> None:
    rows: Any = [{"role": "user", "content": QUESTIONS[0]}]
    given: Any = {"model": "claude-opus-5-5", "max_tokens": 900, "betas": ["compact-2026-09-04"]}
    script = ["A table.", Reply(SUMMARY), "Then Step."]
    async with strict_provider(script) as server, wrapped("claude", engine, server) as client:
        answer = await client.beta.messages.create(messages=rows, **given)
        rows.append({"role": "assistant", "content": [one.to_dict() for one in answer.content]})
        summary = await client.beta.messages.create(
            messages=rows, compaction={"type": "summarize"}, **given
        )
        block = {"role": "assistant", "content": [one.to_dict() for one in summary.content]}
        later: Any = [block, {"role": "user", "content": QUESTIONS[1]}]
        await client.beta.messages.create(messages=later, **given)
        assert server.refusals == []
    told = [(await engine.why("s", number)).standing for number in range(5)]
    assert told == ["summarised", "summarised", "whole", "whole", "whole"]
    assert len(await (await engine.session("s")).get_messages()) == 5


@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_our_provider_sends_a_summary_back_with_what_its_api_asks_for(
    engine: Engine, api: str
) -> None:
    async with strict_provider(SCRIPT) as server:
        ctx = await engine.session("s")
        async with client_of(api, server) as client:
            provider: Any = (
                AnthropicProvider(client, "claude-opus-5-5")
                if api == "claude"
                else OpenAIResponsesProvider(client, "gpt-6-sol")
            )
            for question in QUESTIONS:
                await StreamingOrchestrator().execute(question, ctx, {"api": provider})
        assert server.refusals == []
        later = [2, 4] if api == "claude" else [5, 7]
        assert [len(one) for one in sent(server)] == [1, 3, *later]
    assert (await engine.why("s", 1)).standing == "summarised"
