"""Spans in OpenInference's dialect: other names for the same facts, and no fact more."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
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
from tests.sessions import model

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
            thinking = {"type": "thinking", "thinking": "Two files.", "signature": "x"}
            use = {"type": "tool_use", "name": "read"}
            calls = [{**use, "id": f"c{n}", "input": {"path": f"{n}.py"}} for n in range(2)]
            await ctx.add_message({"role": "assistant", "content": [thinking, *calls]})
            for n in range(2):
                async with cycle.tool_call("read", f"c{n}"):
                    pass
            done = {"type": "tool_result"}
            texts = [{**done, "tool_use_id": f"c{n}", "content": f"text {n}"} for n in range(2)]
            await ctx.add_message({"role": "user", "content": texts})
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request(tools=TOOLS)
            async with cycle.provider_call("model-1", "mistral_ai") as call:
                await call.usage(950, 30)
                call.finished("end_turn", "r2")
            await ctx.add_message(model("Both are short."))
    await ctx.compact(policy="truncate", force=True, budget=200)


async def traced(*, contents: bool = True, dialect: str = "openinference") -> list[Span]:
    async with eventctx.open() as engine:
        await two_tools_and_an_answer(engine)
        clean = cleaner(DEFAULT) if contents else None
        found = tracing.spans(engine.store, "s", contents=clean)
        return [in_dialect(DEFAULT.span(span), dialect) async for span in found]


def of_kind(spans: list[Span], kind: str) -> list[Attributes]:
    return [one.attributes for one in spans if one.attributes["openinference.span.kind"] == kind]


def below(prefix: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in attributes.items()
        if name.startswith(prefix)
    }


def shown_call(row: int, place: int, call: str, arguments: str, name: str = "read") -> Attributes:
    """A call in a message, by the names below a call's messages."""
    call_at = f"{row}.message.tool_calls.{place}.tool_call"
    function = f"{call_at}.function"
    return {f"{call_at}.id": call, f"{function}.name": name, f"{function}.arguments": arguments}


def shown_part(row: int, place: int, kind: str, text: str) -> Attributes:
    part = f"{row}.message.contents.{place}.message_content"
    return {f"{part}.type": kind, f"{part}.text": text}


def shown_result(row: int, call: str, text: str) -> Attributes:
    message = f"{row}.message"
    said = {f"{message}.role": "tool", f"{message}.content": text}
    return {**said, f"{message}.tool_call_id": call}


async def test_each_message_is_several_attributes_and_each_result_has_its_own_id() -> None:
    first, second = of_kind(await traced(), "LLM")
    # The tools that a request is sent with are shown in the form of OpenAI.
    description = "Read a file; my key is [redacted:api-key]"
    function = {"name": "read", "description": description, "parameters": SCHEMA}
    for call in (first, second):
        schemas = [json.loads(str(value)) for value in below("llm.tools.", call).values()]
        assert schemas == [{"type": "function", "function": function}, TOOLS[1]]
    assert below("llm.input_messages.", second) == {
        "0.message.role": "system",
        "0.message.content": "Be brief.",
        "1.message.role": "user",
        **shown_part(1, 0, "text", "Read both. My key is [redacted:api-key]"),
        **shown_part(1, 1, "text", "[image]"),
        "2.message.role": "assistant",
        **shown_part(2, 0, "reasoning", "Two files."),
        **shown_call(2, 0, "c0", '{"path":"0.py"}'),
        **shown_call(2, 1, "c1", '{"path":"1.py"}'),
        **shown_result(3, "c0", "text 0"),
        **shown_result(4, "c1", "text 1"),
    }
    said = {"0.message.role": "assistant", "0.message.content": "Both are short."}
    assert below("llm.output_messages.", second) == said


async def test_a_call_has_its_models_provider_and_tokens_under_their_names() -> None:
    first, _ = of_kind(await traced(contents=False), "LLM")
    names = ("model_name", "request.model_name", "response.model_name")
    counts = {"prompt": 900, "completion": 20, "total": 920, "completion_details.reasoning": 0}
    counts |= {"prompt_details.cache_read": 300, "prompt_details.cache_write": 0}
    assert below("llm.", first) == {
        **dict.fromkeys(names, "model-1"),
        "provider": "mistralai",
        "finish_reason": "tool_use",
        **{f"token_count.{name}": count for name, count in counts.items()},
    }


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


@pytest.mark.parametrize("contents", [True, False])
async def test_a_dialect_changes_names_alone_and_adds_no_text(contents: bool) -> None:
    plain = await traced(contents=contents, dialect="genai")
    given = [dict(span.attributes) for span in plain]
    for before in plain:
        after = in_dialect(before, "openinference")
        for field in Span.__struct_fields__:
            assert field == "attributes" or getattr(after, field) == getattr(before, field)
        assert in_dialect(before, "genai") is before
        for content in ("llm.input_", "llm.output_", "input.", "output."):
            assert contents or below(content, after.attributes) == {}
        told = after.attributes
        left = {name: told[name] for name in told if not name.startswith(OPENINFERENCE)}
        assert left.items() <= before.attributes.items()
        ours = {name for name in before.attributes if not name.startswith("gen_ai.")}
        assert ours <= left.keys()
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
    assert below("llm.output_messages.", found) == {
        "0.message.role": "assistant",
        **shown_call(0, 0, "w", "{}", "web_search"),
        **shown_result(1, "w", "found"),
        "2.message.role": "assistant",
        "2.message.content": "I found it.",
    }


def test_system_instructions_that_were_cut_are_shown_as_far_as_they_go() -> None:
    cut = json.dumps([{"type": "text", "content": "x" * MAX_CONTENT}])[:MAX_CONTENT]
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Go."}]}])
    said = {"gen_ai.system_instructions": cut, "gen_ai.input.messages": asked}
    found = to_openinference({"gen_ai.operation.name": "chat", **said})
    assert found["llm.input_messages.0.message.content"] == cut
    assert found["llm.input_messages.1.message.content"] == "Go."


def test_the_page_has_every_name_of_an_attribute_of_a_span() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Dialects\n")[2]
    shown = re.findall(r"`([^`]+)`", section.partition("\n| span |")[2].partition("\n## ")[0])
    for name in NAMES:
        if not name.startswith(("message", "tool_call.", "tool.json_schema")):
            at_last = name.removeprefix("llm.token_count")
            assert any(text in (name, at_last) or text.startswith(f"{name}.N.") for text in shown)


async def live(**settings: Any) -> list[Attributes]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = TraceSink(provider, content=True, **settings)
    async with eventctx.open(sinks=[sink]) as engine:
        await two_tools_and_an_answer(engine)
        clean = cleaner(DEFAULT)
        logged = [span async for span in tracing.spans(engine.store, "s", contents=clean)]
    finished = exporter.get_finished_spans()
    sent = {f"{one.context.span_id:016x}": dict(one.attributes or {}) for one in finished}
    expected = [in_dialect(DEFAULT.span(span), "openinference") for span in logged]
    assert sent == {span.span_id: span.attributes for span in expected}
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
    said: dict[str, Any] = {"gen_ai.operation.name": "chat", "session.id": "s"}
    said |= {"gen_ai.usage.input_tokens": 9, "gen_ai.input.messages": asked}
    attributes = to_openinference(said)
    provider = TracerProvider()
    span: Any = provider.get_tracer("t").start_span("chat", attributes=attributes)
    kept = dict(span.attributes)
    assert len(attributes) > 600 and len(kept) == 128
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
