"""Spans in OpenInference's dialect: other names for the same facts, and no fact more."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, SamplingResult, StaticSampler

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.hooks.counting import configure_tracing
from eventctx.hooks.redact import DEFAULT, cleaner
from eventctx.hooks.trace import TraceSink
from eventctx.projections.trace import dialects
from eventctx.projections.trace.attributes import Attributes
from eventctx.projections.trace.dialects import in_dialect, to_openinference
from eventctx.projections.trace.spans import Span
from eventctx.projections.trace.texts import MAX_CONTENT
from eventctx.queries import spans as tracing

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "traces.md"
KEY = "sk-proj-" + "Zx9Qw7Rt5" * 5
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [
    {"name": "read", "description": f"Read a file; my key is {KEY}", "input_schema": SCHEMA},
    {"type": "web_search_20250305", "name": "web_search"},
]
NAMES = [
    value
    for name, value in vars(dialects).items()
    if name.isupper() and isinstance(value, str) and "." in value
]
OPENINFERENCE = ("openinference.", "llm.", "input.", "output.", "agent.", "tool.")


async def two_tools_and_an_answer(engine: eventctx.Engine) -> None:
    ctx = await engine.session("s")
    await ctx.add_message({"role": "system", "content": "Be brief."})
    async with ctx.turn("t", agent=f"coder {KEY}") as turn:
        asked = [{"type": "text", "text": f"Read both. My key is {KEY}"}, IMAGE]
        await ctx.add_message({"role": "user", "content": asked})
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request(tools=TOOLS)
            async with cycle.provider_call("model-1", "mistral_ai") as call:
                await call.usage(900, 20, cache_read=300)
                call.finished("tool_use", "r1")
            calls = [
                {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"path": f"{n}.py"}}
                for n in range(2)
            ]
            thinking = {"type": "thinking", "thinking": "Two files.", "signature": "x"}
            await ctx.add_message({"role": "assistant", "content": [thinking, *calls]})
            for n in range(2):
                async with cycle.tool_call("read", f"c{n}"):
                    pass
            results = [
                {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"text {n}"}
                for n in range(2)
            ]
            await ctx.add_message({"role": "user", "content": results})
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request(tools=TOOLS)
            async with cycle.provider_call("model-1", "mistral_ai") as call:
                await call.usage(950, 30)
                call.finished("end_turn", "r2")
            await ctx.add_message({"role": "assistant", "content": "Both are short."})
    await ctx.compact(policy="truncate", force=True, budget=200)


async def traced(*, contents: bool = True, dialect: str = "openinference") -> list[Span]:
    async with eventctx.open() as engine:
        await two_tools_and_an_answer(engine)
        clean = cleaner(DEFAULT) if contents else None
        found = tracing.spans(engine.store, "s", contents=clean)
        return [in_dialect(DEFAULT.span(span), dialect) async for span in found]


def of_kind(spans: list[Span], kind: str) -> list[Attributes]:
    return [one.attributes for one in spans if one.attributes["openinference.span.kind"] == kind]


async def test_each_message_of_a_call_is_several_attributes_and_each_result_has_its_own_id() -> (
    None
):
    _, second = of_kind(await traced(), "LLM")
    asked = {
        name.removeprefix("llm.input_messages."): value
        for name, value in second.items()
        if name.startswith("llm.input_messages.")
    }
    assert asked == {
        "0.message.role": "system",
        "0.message.content": "Be brief.",
        "1.message.role": "user",
        "1.message.contents.0.message_content.type": "text",
        "1.message.contents.0.message_content.text": "Read both. My key is [redacted:api-key]",
        "1.message.contents.1.message_content.type": "text",
        "1.message.contents.1.message_content.text": "[image]",
        "2.message.role": "assistant",
        "2.message.contents.0.message_content.type": "reasoning",
        "2.message.contents.0.message_content.text": "Two files.",
        "2.message.tool_calls.0.tool_call.id": "c0",
        "2.message.tool_calls.0.tool_call.function.name": "read",
        "2.message.tool_calls.0.tool_call.function.arguments": '{"path":"0.py"}',
        "2.message.tool_calls.1.tool_call.id": "c1",
        "2.message.tool_calls.1.tool_call.function.name": "read",
        "2.message.tool_calls.1.tool_call.function.arguments": '{"path":"1.py"}',
        "3.message.role": "tool",
        "3.message.content": "text 0",
        "3.message.tool_call_id": "c0",
        "4.message.role": "tool",
        "4.message.content": "text 1",
        "4.message.tool_call_id": "c1",
    }
    assert second["llm.output_messages.0.message.role"] == "assistant"
    assert second["llm.output_messages.0.message.content"] == "Both are short."


async def test_a_call_has_its_models_provider_and_tokens_under_their_names() -> None:
    first, _ = of_kind(await traced(contents=False), "LLM")
    told = {name: value for name, value in first.items() if name.startswith("llm.")}
    assert told == {
        "llm.model_name": "model-1",
        "llm.request.model_name": "model-1",
        "llm.response.model_name": "model-1",
        "llm.provider": "mistralai",
        "llm.finish_reason": "tool_use",
        "llm.token_count.prompt": 900,
        "llm.token_count.completion": 20,
        "llm.token_count.total": 920,
        "llm.token_count.prompt_details.cache_read": 300,
        "llm.token_count.prompt_details.cache_write": 0,
        "llm.token_count.completion_details.reasoning": 0,
    }


async def test_the_tools_that_a_request_is_sent_with_are_shown_in_the_form_of_openai() -> None:
    for call in of_kind(await traced(), "LLM"):
        schemas = [
            json.loads(str(value)) for name, value in call.items() if name.startswith("llm.tools.")
        ]
        assert schemas == [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Read a file; my key is [redacted:api-key]",
                    "parameters": SCHEMA,
                },
            },
            {"type": "web_search_20250305", "name": "web_search"},
        ]


async def test_turns_tools_and_compactions_have_an_input_and_an_output() -> None:
    spans = await traced()
    (turn,), tools = of_kind(spans, "AGENT"), of_kind(spans, "TOOL")
    assert tools[0]["tool.description"] == "Read a file; my key is [redacted:api-key]"
    assert turn["agent.name"] == tools[0]["agent.name"] == "coder [redacted:api-key]"
    assert turn["input.value"] == "Read both. My key is [redacted:api-key]\n\n[image]"
    assert (turn["output.value"], turn["output.mime_type"]) == ("Both are short.", "text/plain")
    assert [
        (one["tool.name"], one["tool.id"], one["input.value"], one["output.value"]) for one in tools
    ] == [("read", f"c{n}", f'{{"path":"{n}.py"}}', f"text {n}") for n in range(2)]
    assert {(one["input.mime_type"], one["output.mime_type"]) for one in tools} == {
        ("application/json", "text/plain")
    }
    (compaction,) = of_kind(spans, "CHAIN")
    assert json.loads(str(compaction["input.value"]))[0]["role"] in ("user", "assistant", "tool")
    assert compaction["input.mime_type"] == "application/json"


async def test_without_contents_no_span_has_a_text_and_all_else_is_there_under_one_name() -> None:
    for before in await traced(contents=False, dialect="genai"):
        after = in_dialect(before, "openinference")
        assert not any(
            name.startswith(("llm.input_", "llm.output_", "input.", "output."))
            for name in after.attributes
        )
        left = {
            name: value
            for name, value in after.attributes.items()
            if not name.startswith(OPENINFERENCE)
        }
        assert left.items() <= before.attributes.items()
        ours = {name for name in before.attributes if not name.startswith("gen_ai.")}
        assert ours <= left.keys()


async def test_a_dialect_changes_the_names_of_attributes_and_nothing_else() -> None:
    plain = await traced(dialect="genai")
    given = [dict(span.attributes) for span in plain]
    for span in plain:
        said = in_dialect(span, "openinference")
        for field in Span.__struct_fields__:
            assert field == "attributes" or getattr(said, field) == getattr(span, field)
        assert in_dialect(span, "genai") is span
    assert [span.attributes for span in plain] == given


def test_the_result_of_a_providers_own_tool_follows_its_call() -> None:
    parts = [
        {"type": "tool_call", "id": "w", "name": "web_search", "arguments": "{}"},
        {"type": "tool_call_response", "id": "w", "response": "found"},
        {"type": "text", "content": "I found it."},
        {"type": "redacted_thinking"},
    ]
    answer = json.dumps([{"role": "assistant", "parts": parts, "finish_reason": "stop"}])
    found = to_openinference({"gen_ai.operation.name": "chat", "gen_ai.output.messages": answer})
    said = {
        name.removeprefix("llm.output_messages."): value
        for name, value in found.items()
        if name.startswith("llm.output_messages.")
    }
    assert said == {
        "0.message.role": "assistant",
        "0.message.tool_calls.0.tool_call.id": "w",
        "0.message.tool_calls.0.tool_call.function.name": "web_search",
        "0.message.tool_calls.0.tool_call.function.arguments": "{}",
        "1.message.role": "tool",
        "1.message.content": "found",
        "1.message.tool_call_id": "w",
        "2.message.role": "assistant",
        "2.message.content": "I found it.",
    }


def test_system_instructions_that_were_cut_are_shown_as_far_as_they_go() -> None:
    cut = json.dumps([{"type": "text", "content": "x" * MAX_CONTENT}])[:MAX_CONTENT]
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Go."}]}])
    found = to_openinference(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.system_instructions": cut,
            "gen_ai.input.messages": asked,
        }
    )
    assert found["llm.input_messages.0.message.content"] == cut
    assert found["llm.input_messages.1.message.content"] == "Go."


def test_the_page_has_every_name_of_an_attribute_of_a_span() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Dialects\n")[2]
    shown = re.findall(r"`([^`]+)`", section.partition("\n| span |")[2].partition("\n## ")[0])
    for name in NAMES:
        if not name.startswith(("message", "tool_call.", "tool.json_schema")):
            at_last = name.removeprefix("llm.token_count")
            assert any(text in (name, at_last) or text.startswith(f"{name}.N.") for text in shown)


# -- live ----------------------------------------------------------------------------------------


async def live(**settings: Any) -> list[Attributes]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = TraceSink(provider, content=True, **settings)
    async with eventctx.open(sinks=[sink]) as engine:
        await two_tools_and_an_answer(engine)
        clean = cleaner(DEFAULT)
        logged = [span async for span in tracing.spans(engine.store, "s", contents=clean)]
    sent = {
        one.context.span_id: dict(one.attributes or {}) for one in exporter.get_finished_spans()
    }
    expected = {
        int(span.span_id, 16): in_dialect(DEFAULT.span(span), "openinference").attributes
        for span in logged
    }
    assert sent == expected
    return list(sent.values())


async def test_a_live_span_has_the_attributes_of_the_one_from_the_log() -> None:
    found = await live(dialect="openinference")
    assert {one["openinference.span.kind"] for one in found} == {"AGENT", "LLM", "TOOL", "CHAIN"}
    assert KEY[-20:] not in json.dumps(found)


async def test_a_sampler_is_asked_with_the_names_of_the_dialect() -> None:
    asked: list[Any] = []

    class Noted(StaticSampler):
        def should_sample(self, *arguments: Any, **named: Any) -> SamplingResult:
            asked.append(arguments[4])
            return super().should_sample(*arguments, **named)

    sink = TraceSink(TracerProvider(sampler=Noted(Decision.RECORD_ONLY)), dialect="openinference")
    async with eventctx.open(sinks=[sink]) as engine:
        await two_tools_and_an_answer(engine)
    kinds = [one["openinference.span.kind"] for one in asked]
    assert kinds == ["AGENT", "CHAIN"]


async def test_a_limit_of_the_sdk_takes_the_oldest_messages_and_not_what_a_span_is() -> None:
    parts = [{"type": "text", "content": "x"}]
    asked = json.dumps([{"role": "user", "parts": parts} for _ in range(300)])
    attributes = to_openinference(
        {
            "gen_ai.operation.name": "chat",
            "session.id": "s",
            "gen_ai.usage.input_tokens": 9,
            "gen_ai.input.messages": asked,
        }
    )
    provider = TracerProvider()
    span: Any = provider.get_tracer("t").start_span("chat", attributes=attributes)
    kept = dict(span.attributes)
    assert len(attributes) > 600
    assert len(kept) == 128
    assert kept["openinference.span.kind"] == "LLM"
    assert (kept["session.id"], kept["llm.token_count.prompt"]) == ("s", 9)
    assert "llm.input_messages.299.message.content" in kept
    assert "llm.input_messages.0.message.content" not in kept


async def test_a_program_without_a_set_up_sends_all_messages_of_a_long_request() -> None:
    sink = configure_tracing("http://localhost:4318", dialect="openinference")
    provider: Any = sink._tracer._provider
    attributes = {f"llm.input_messages.{n}.message.role": "user" for n in range(300)}
    assert len(provider.get_tracer("t").start_span("chat", attributes=attributes).attributes) == 300
    await asyncio.to_thread(provider.shutdown)


@pytest.mark.parametrize("name", ["phoenix", "", None, 7])
def test_an_unknown_dialect_is_refused_with_those_that_there_are(name: Any) -> None:
    for made in (lambda: TraceSink(dialect=name), lambda: configure_tracing(dialect=name)):
        with pytest.raises(InvalidSetting, match="expected one of genai, openinference, found"):
            made()
