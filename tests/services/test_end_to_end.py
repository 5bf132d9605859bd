"""A live session and an imported one in a real Jaeger: what a person finds there is the log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.projections.trace.spans import Span
from tests.services.jaeger import Jaeger
from tests.services.jaeger_query import JaegerQuery, SeenSpan, wait_for
from tests.services.live import folded, live_session, trace

PROTOCOLS = ["grpc", "http"]


def traces_of(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.trace_id, []).append(span)
    return found


def seen_in(query: JaegerQuery, traces: dict[str, list[Span]]) -> dict[str, tuple[SeenSpan, ...]]:
    """What Jaeger answers for these traces, once it has all their spans."""

    def all_there() -> dict[str, tuple[SeenSpan, ...]] | None:
        seen = {trace_id: query.spans(trace_id) for trace_id in traces}
        whole = all(len(seen[trace_id]) >= len(spans) for trace_id, spans in traces.items())
        return seen if whole else None

    return wait_for(all_there, 60, "all spans of all traces") or {}


Seen = tuple[Any, ...]
"""Of a span its id, parent, name, start, tags, events, and whether it is an error."""


def as_seen(span: Span) -> Seen:
    """How Jaeger should answer for a span of the log."""
    tags = {name: _jaegers(value) for name, value in span.attributes.items()}
    events = sorted((one.time // 1_000, one.name, sorted(one.attributes)) for one in span.events)
    told = (span.span_id, span.parent_span_id, span.name, span.start // 1_000)
    return (*told, tags, events, span.status == "error")


def _jaegers(value: object) -> object:
    if not isinstance(value, tuple):
        return value
    return "[" + ",".join(f'"{item}"' for item in value) + "]"


def told(seen: SeenSpan) -> Seen:
    theirs = ("span.kind", "otel.", "error")
    tags = {
        name: value
        for name, value in seen.tags.items()
        if name == "error.type" or not name.startswith(theirs)
    }
    events = sorted((one.time_us, one.name, sorted(one.attributes)) for one in seen.events)
    told = (seen.span_id, seen.parent_span_id, seen.name, seen.start_us)
    return (*told, tags, events, seen.tags.get("error") is True)


async def imported(source: Path, store: Path) -> None:
    arguments = ["import", str(source), "--complete", "--store", str(store)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert done.exit_code == 0, done.output


def assert_jaeger_shows(query: JaegerQuery, spans: list[Span]) -> dict[str, tuple[SeenSpan, ...]]:
    traces = traces_of(spans)
    seen = seen_in(query, traces)
    for trace_id, expected in traces.items():
        found, wanted = map(told, seen[trace_id]), map(as_seen, expected)
        assert sorted(found, key=itemgetter(0)) == sorted(wanted, key=itemgetter(0))
        for one in seen[trace_id]:
            assert not one.warnings
            durations = {span.span_id: span.end - span.start for span in expected}
            assert abs(one.duration_us - durations[one.span_id] / 1_000) < 2
    return seen


def assert_it_is_found(query: JaegerQuery, service: str, session: str, spans: list[Span]) -> None:
    def found(name: str, value: str, operation: str | None = None) -> set[str]:
        return {one["traceID"] for one in query.find(service, {name: value}, operation)}

    expected = {
        span.trace_id
        for span in spans
        if span.name == "chat model-1" and "gen_ai.conversation.compacted" in span.attributes
    }
    assert found("gen_ai.conversation.compacted", "true", "chat model-1") == expected != set()
    for name in ("gen_ai.conversation.id", "session_id"):
        assert found(name, session) == set(traces_of(spans))
    failing = {one.trace_id for one in spans if one.status == "error"}
    assert found("eventctx.outcome", "error") == failing != set()
    assert len(found("error.type", "FileNotFoundError")) == 3
    assert "compact workset" in query.operations(service)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_live_session_is_in_jaeger_as_it_is_in_its_log_and_sending_it_again_changes_nothing(
    jaeger: Jaeger, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, service = JaegerQuery(jaeger.query), f"live-{protocol}-{secrets.token_hex(4)}"
    store, url = tmp_path / "s.db", getattr(jaeger, protocol)
    session = await live_session(store, url, service)
    spans = await folded(store, session)
    before = assert_jaeger_shows(query, spans)

    assert sum(span.name == "compact workset" for span in spans) >= 3
    assert {"ok", "error", "cancelled"} <= {span.attributes["eventctx.outcome"] for span in spans}
    roots = [one for seen in before.values() for one in seen if one.parent_span_id is None]
    assert [one.name for one in roots] == ["invoke_agent coder"] * 4
    assert_it_is_found(query, service, session, spans)

    monkeypatch.setenv("OTEL_SERVICE_NAME", service)
    for _ in range(2):
        await asyncio.to_thread(trace, store, session, "--otlp", url)
    assert assert_jaeger_shows(query, spans) == before


async def test_an_imported_session_is_in_jaeger_with_its_original_times_by_either_protocol(
    jaeger: Jaeger, tmp_path: Path, recorded_sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = f"imported-{secrets.token_hex(4)}"
    monkeypatch.setenv("OTEL_SERVICE_NAME", service)
    (source,) = (recorded_sessions / "claude-code" / "spotter-258c7280").glob("*.jsonl")
    store, query = tmp_path / "s.db", JaegerQuery(jaeger.query)
    await imported(source, store)
    spans = await folded(store, source.stem)
    (compaction,) = [span for span in spans if span.name.startswith("compact")]
    assert compaction.attributes["eventctx.compaction.estimated_tokens.before"] > 100_000

    answers = []
    for protocol in PROTOCOLS:
        await asyncio.to_thread(trace, store, source.stem, "--otlp", getattr(jaeger, protocol))
        answers.append(assert_jaeger_shows(query, spans))
    assert answers[0] == answers[1]
    found = query.find(service, {"gen_ai.conversation.compacted": "true"})
    assert compaction.trace_id in {one["traceID"] for one in found}


@pytest.mark.parametrize(
    "recorded",
    ["claude-code/entire-26dcd5518fea.jsonl", "pi/large-session.jsonl", "openhands/cli447_case_a"],
)
async def test_jaeger_suspects_no_clock_in_a_recorded_session_whose_host_it_does_not_know(
    jaeger: Jaeger,
    tmp_path: Path,
    recorded_sessions: Path,
    recorded: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", f"recorded-{secrets.token_hex(4)}")
    store, query = tmp_path / "s.db", JaegerQuery(jaeger.query)
    await imported(recorded_sessions / recorded, store)
    await asyncio.to_thread(trace, store, "--all", "--otlp", jaeger.http)
    async with eventctx.open(store, create=False) as engine:
        sessions = [info.stream async for info in engine.each_session()]
    for session in sessions:
        spans = await folded(store, session)
        assert any(span.name.startswith("execute_tool") for span in spans)
        for seen in seen_in(query, traces_of(spans)).values():
            assert not [one.warnings for one in seen if one.warnings]
            assert not any("host.id" in one.resource for one in seen)


async def test_a_turn_that_is_sent_while_open_and_again_when_done_has_one_root_in_jaeger(
    jaeger: Jaeger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", f"open-{secrets.token_hex(4)}")
    store, query = tmp_path / "s.db", JaegerQuery(jaeger.query)

    async def sent(*options: str) -> str:
        arguments = ["trace", "s", "--otlp", jaeger.http, "--store", str(store), *options]
        done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        assert done.exit_code == 0, done.output
        return done.stderr

    async with eventctx.open(store) as engine:
        ctx = await engine.session("s")
        async with ctx.turn() as turn:
            async with turn.iteration() as cycle, cycle.provider_call("m"):
                pass
            await ctx.add_message({"role": "user", "content": "Go on."})
            told = await sent()
            assert "sent 0 spans in 0 traces" in told
            assert "left out 1 turn that is still open (--unfinished sends it)" in told
    told = await sent()
    assert "sent 2 spans in 1 trace" in told
    assert "left out" not in told
    spans = await folded(store, "s")
    (seen,) = seen_in(query, traces_of(spans)).values()
    assert sorted(one.name for one in seen) == ["chat m", "invoke_agent"]

    async with eventctx.open(store) as engine:
        ctx = await engine.session("s")
        async with ctx.turn():
            await ctx.add_message({"role": "user", "content": "Go on."})
            assert "sent 3 spans in 2 traces" in await sent("--unfinished")
        spans = await folded(store, "s")
    await sent()
    trace_id = spans[-1].trace_id
    both = wait_for(lambda: len(found := query.spans(trace_id)) == 2 and found)
    assert {one.tags["eventctx.outcome"] for one in both} == {"unfinished", "ok"}
