"""A live session in a real Phoenix: what a receiver of another make shows is the log too.

Opt-in, see tests/services/phoenix.py.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import eventctx
from eventctx.hooks.otlp import exporter_for
from eventctx.hooks.trace import TraceSink
from eventctx.projections.trace.spans import Span
from tests.projections.test_trace_dialects import NAMES
from tests.services.jaeger_query import wait_for
from tests.services.live import folded, live_session, tool_round, trace
from tests.services.phoenix import Phoenix, PhoenixQuery, SeenSpan

PROTOCOLS = ["grpc", "http"]
PROJECT = "openinference.project.name"
KINDS = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL", "compact": "UNKNOWN"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
TOOL = {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}
OF_PHOENIX = ("llm.", "tool.", "output.")  # OpenInference's, which it makes of ours


class Sent(NamedTuple):
    """A session that was sent live to a project of its own, its log, and what Phoenix has of it."""

    project: str
    store: Path
    session: str
    spans: list[Span]
    seen: tuple[SeenSpan, ...]

    @property
    def traces(self) -> set[str]:
        return {span.trace_id for span in self.spans}


@pytest.fixture
def query(phoenix: Phoenix) -> PhoenixQuery:
    return PhoenixQuery(phoenix.query)


@pytest.fixture(params=PROTOCOLS)
async def sent(
    request: pytest.FixtureRequest,
    phoenix: Phoenix,
    query: PhoenixQuery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Sent]:
    project = f"{request.param}-{secrets.token_hex(4)}"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{PROJECT}={project}")  # for sending again
    store, url = tmp_path / "s.db", getattr(phoenix, request.param)
    session = await live_session(store, url, "phoenix", {PROJECT: project})
    spans = await folded(store, session)
    yield Sent(project, store, session, spans, await stored(query, project, len(spans)))


async def stored(query: PhoenixQuery, project: str, number: int) -> tuple[SeenSpan, ...]:
    """All spans of a project, as soon as there are so many."""

    def all_there() -> tuple[SeenSpan, ...]:
        seen = query.spans(project)
        return seen if len(seen) >= number else ()

    return await asyncio.to_thread(wait_for, all_there, 30, f"{number} spans of {project}")


async def send_again(query: PhoenixQuery, sent: Sent, url: str, *options: str) -> None:
    """Send all sessions of the store again, and return when Phoenix has worked that off.

    It works off an export in its order, so a span that it does not have yet is sent as the last.
    """
    name = f"behind-{secrets.token_hex(4)}"
    async with eventctx.open(sent.store) as engine:
        ctx = await engine.session(name)
        async with ctx.turn("t", agent="last"):
            pass
        assert (await engine.sessions())[-1].stream == name
    await asyncio.to_thread(trace, sent.store, "--all", "--otlp", url, *options)
    await asyncio.to_thread(wait_for, lambda: query.session(name), 30, f"the session {name}")


def as_seen(span: Span) -> tuple[Any, ...]:
    """What Phoenix should answer for a span of the log, but for times."""
    message = (span.message or "") if span.status == "error" else ""
    events = [(event.name, plain(event.attributes)) for event in span.events]
    named = (span.trace_id, span.parent_span_id, span.name, span.status.upper(), message)
    return (*named, plain(span.attributes), events)


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(attributes)))  # with lists for tuples


def told(seen: SeenSpan) -> tuple[Any, ...]:
    events = [(event.name, event.attributes) for event in seen.events]
    named = (seen.trace_id, seen.parent_span_id, seen.name, seen.status, seen.message)
    return (*named, attributes(seen, of_phoenix=False), events)


def attributes(seen: SeenSpan, *, of_phoenix: bool) -> dict[str, Any]:
    return {
        name: value
        for name, value in seen.attributes.items()
        if name.startswith(OF_PHOENIX) == of_phoenix
    }


def times(span: Span) -> list[float]:
    return [time / 1_000 for time in (span.start, span.end, *(one.time for one in span.events))]


def test_every_span_is_in_phoenix_once_as_in_the_log_with_model_tool_and_tokens(sent: Sent) -> None:
    assert sorted(one.span_id for one in sent.seen) == sorted(one.span_id for one in sent.spans)
    seen = {one.span_id: one for one in sent.seen}
    for span in sent.spans:
        one = seen[span.span_id]
        assert told(one) == as_seen(span)
        answered = [one.start_us, one.end_us, *(event.time_us for event in one.events)]
        assert answered == pytest.approx(times(span), rel=0, abs=1)
    assert sum(span.name == "compact workset" for span in sent.spans) >= 3
    outcomes = {span.attributes["eventctx.outcome"] for span in sent.spans}
    assert outcomes == {"ok", "error", "cancelled"}
    calls = [one for one in sent.seen if one.kind == "LLM"]
    answered = [one for one in calls if one.attributes["eventctx.outcome"] == "ok"]
    assert (len(calls), len(answered)) == (13, 12)
    for one in answered:
        assert attributes(one, of_phoenix=True) == {
            "llm.model_name": "model-1",
            "llm.system": "acme",  # a provider that it knows would be llm.provider too
            "llm.finish_reason": "tool_use",
            "llm.token_count.prompt": 900,
            "llm.token_count.completion": 20,
            "llm.token_count.total": 920,
            "llm.token_count.prompt_details.cache_read": 300,
            "llm.token_count.prompt_details.cache_write": 0,  # by the older of its two names
            "output.mime_type": "application/json",
            "output.value": '{"id": "r1", "model": "model-1"}',
        }
    (cancelled,) = [one for one in calls if one not in answered]
    assert attributes(cancelled, of_phoenix=True) == {
        "llm.model_name": "model-1",
        "llm.system": "acme",
        "llm.finish_reason": "error",
    }
    for tool in (one for one in sent.seen if one.kind == "TOOL"):
        key = tool.attributes["gen_ai.tool.call.id"]
        assert attributes(tool, of_phoenix=True) == {"tool.name": "read", "tool.id": key}


async def test_sending_again_changes_nothing_in_phoenix(
    sent: Sent, query: PhoenixQuery, phoenix: Phoenix
) -> None:
    session, tokens = query.session(sent.session), query.tokens(sent.project)
    for number, protocol in enumerate([*PROTOCOLS, *PROTOCOLS], start=1):
        await send_again(query, sent, getattr(phoenix, protocol))
        now = query.spans(sent.project)
        assert len(now) == len(sent.seen) + number
        assert tuple(one for one in now if one.trace_id in sent.traces) == sent.seen
    assert query.session(sent.session) == session
    counted = query.tokens(sent.project)
    assert {trace_id: counted[trace_id] for trace_id in sent.traces} == tokens


async def session_of_a_dialect(store: Path, url: str, project: str, dialect: str) -> None:
    """A session that is sent live with its contents: parallel tools, an image, a compaction."""
    provider = TracerProvider(
        resource=Resource({PROJECT: project}),
        span_limits=SpanLimits(max_span_attributes=SpanLimits.UNSET),
    )
    provider.add_span_processor(BatchSpanProcessor(exporter_for(url)))
    sink = TraceSink(provider, content=True, dialect=dialect)
    async with eventctx.open(store, sinks=[sink]) as engine:
        ctx = await engine.session(project, max_tokens=4_000)
        for number in range(3):
            async with ctx.turn(agent="coder") as turn:
                asked = [{"type": "text", "text": f"Task {number}. " + "x" * 600}, IMAGE]
                await ctx.add_message({"role": "user", "content": asked})
                for _ in range(4):
                    async with turn.iteration() as cycle:
                        await tool_round(ctx, cycle)
                await ctx.add_message({"role": "assistant", "content": f"Done {number}."})
    await asyncio.to_thread(provider.shutdown)


async def test_in_openinference_phoenix_knows_each_kind_input_output_message_and_parallel_result(
    phoenix: Phoenix, query: PhoenixQuery, tmp_path: Path
) -> None:
    project, store = f"dialect-{secrets.token_hex(4)}", tmp_path / "s.db"
    await session_of_a_dialect(store, phoenix.http, project, "openinference")
    seen = await stored(query, project, len(await folded(store, project)))
    kinds = {(one.name.split()[0], one.kind) for one in seen}
    assert kinds == set((KINDS | {"compact": "CHAIN"}).items())
    turns = [one for one in seen if one.kind == "AGENT"]
    assert [one.attributes["output.value"] for one in turns] == [f"Done {n}." for n in range(3)]
    for number, one in enumerate(turns):
        assert one.attributes["input.value"] == f"Task {number}. " + "x" * 600 + "\n\n[image]"
    tools = [one for one in seen if one.kind == "TOOL" and one.status == "UNSET"]
    assert len(tools) == 24
    for one in tools:
        assert (one.attributes["input.value"], one.attributes["output.value"]) == ("{}", "z" * 400)
    compactions = [one for one in seen if one.kind == "CHAIN"]
    # one that only shortened took no message out, and not each puts one in
    assert any({"input.value", "output.value"} <= one.attributes.keys() for one in compactions)
    second = [one for one in seen if one.kind == "LLM"][1].attributes
    asked = "llm.input_messages.1.message.tool_calls"
    calls = [second[f"{asked}.{number}.tool_call.id"] for number in range(3)]
    for number, key in enumerate(calls, start=2):
        message = f"llm.input_messages.{number}.message"
        assert second[f"{message}.role"] == "tool"
        assert (second[f"{message}.tool_call_id"], second[f"{message}.content"]) == (key, "z" * 400)
    name = "llm.output_messages.0.message.tool_calls.2.tool_call.function.name"
    assert second[name] == "read"


def test_openinference_has_all_of_our_names_for_it(phoenix: Phoenix) -> None:
    listing = (
        "import openinference.semconv.trace as t\n"
        "for one in vars(t).values():\n"
        "    for name, value in vars(one).items() if isinstance(one, type) else ():\n"
        "        if name.isupper() and isinstance(value, str): print(value)\n"
    )
    said = subprocess.check_output([phoenix.python, "-I", "-c", listing], text=True, timeout=60)
    assert set(NAMES) <= set(said.split())
