"""A live session and an imported one in a real Jaeger: what a person finds there is the log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
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


def url_of(jaeger: Jaeger, protocol: str) -> str:
    return jaeger.grpc.replace("http://", "grpc://") if protocol == "grpc" else jaeger.http


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


def as_seen(span: Span) -> dict[str, Any]:
    """How Jaeger should answer for a span of the log."""
    start = span.start // 1_000
    return {
        "span_id": span.span_id,
        "parent": span.parent_span_id,
        "name": span.name,
        "start": start,
        "tags": {name: _jaegers(value) for name, value in span.attributes.items()},
        "events": sorted(
            (event.time // 1_000, event.name, sorted(event.attributes)) for event in span.events
        ),
        "error": span.status == "error",
    }


def _jaegers(value: object) -> object:
    if not isinstance(value, tuple):
        return value
    return "[" + ",".join(f'"{item}"' for item in value) + "]"


def told(seen: SeenSpan) -> dict[str, Any]:
    theirs = ("span.kind", "otel.", "error")
    return {
        "span_id": seen.span_id,
        "parent": seen.parent_span_id,
        "name": seen.name,
        "start": seen.start_us,
        "tags": {
            name: value
            for name, value in seen.tags.items()
            if name == "error.type" or not name.startswith(theirs)
        },
        "events": sorted(
            (event.time_us, event.name, sorted(event.attributes)) for event in seen.events
        ),
        "error": seen.tags.get("error") is True,
    }


def assert_jaeger_shows(query: JaegerQuery, spans: list[Span]) -> dict[str, tuple[SeenSpan, ...]]:
    traces = traces_of(spans)
    seen = seen_in(query, traces)
    for trace_id, expected in traces.items():
        found = sorted((told(one) for one in seen[trace_id]), key=lambda one: one["span_id"])
        wanted = sorted((as_seen(one) for one in expected), key=lambda one: one["span_id"])
        assert found == wanted
        for one in seen[trace_id]:
            assert not one.warnings
            durations = {span.span_id: span.end - span.start for span in expected}
            assert abs(one.duration_us - durations[one.span_id] / 1_000) < 2
    return seen


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_live_session_is_in_jaeger_as_it_is_in_its_log_and_sending_it_again_changes_nothing(
    jaeger: Jaeger, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, service = JaegerQuery(jaeger.query), f"live-{protocol}-{secrets.token_hex(4)}"
    store, url = tmp_path / "s.db", url_of(jaeger, protocol)
    session = await live_session(store, url, service)
    spans = await folded(store, session)
    before = assert_jaeger_shows(query, spans)

    assert sum(span.name == "compact workset" for span in spans) >= 3
    outcomes = {span.attributes["eventctx.outcome"] for span in spans}
    assert {"ok", "error", "cancelled"} <= outcomes
    roots = [one for seen in before.values() for one in seen if one.parent_span_id is None]
    assert [one.name for one in roots] == ["invoke_agent coder"] * 4

    monkeypatch.setenv("OTEL_SERVICE_NAME", service)
    for _ in range(2):
        await asyncio.to_thread(trace, store, session, "--otlp", url)
    assert assert_jaeger_shows(query, spans) == before


async def test_compacted_requests_are_found_by_search(jaeger: Jaeger, tmp_path: Path) -> None:
    query, service = JaegerQuery(jaeger.query), f"found-{secrets.token_hex(4)}"
    store = tmp_path / "s.db"
    session = await live_session(store, jaeger.http, service)
    spans = await folded(store, session)
    seen_in(query, traces_of(spans))
    compacted = {"gen_ai.conversation.compacted": True}
    expected = {
        span.trace_id
        for span in spans
        if span.name == "chat model-1" and "gen_ai.conversation.compacted" in span.attributes
    }
    all_traces = set(traces_of(spans))
    found = query.find(service, operation="chat model-1", tags=compacted)
    assert {one["traceID"] for one in found} == expected
    assert expected
    by_session = query.find(service, tags={"gen_ai.conversation.id": session})
    assert {one["traceID"] for one in by_session} == all_traces
    by_word = query.find(service, tags={"session_id": session})
    assert {one["traceID"] for one in by_word} == all_traces
    failing = query.find(service, tags={"eventctx.outcome": "error"})
    assert len(failing) == len(traces_of([one for one in spans if one.status == "error"])) > 0
    failed = query.find(service, tags={"error.type": "FileNotFoundError"})
    assert len(failed) == 3
    assert "compact workset" in query.operations(service)


async def test_an_imported_session_is_in_jaeger_with_its_original_times_by_either_protocol(
    jaeger: Jaeger, tmp_path: Path, recorded_sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = f"imported-{secrets.token_hex(4)}"
    monkeypatch.setenv("OTEL_SERVICE_NAME", service)
    (source,) = (recorded_sessions / "claude-code" / "spotter-258c7280").glob("*.jsonl")
    store, query = tmp_path / "s.db", JaegerQuery(jaeger.query)
    imported = await asyncio.to_thread(
        CliRunner().invoke, cli, ["import", str(source), "--complete", "--store", str(store)]
    )
    assert imported.exit_code == 0, imported.output
    spans = await folded(store, source.stem)
    (compaction,) = [span for span in spans if span.name.startswith("compact")]
    assert compaction.attributes["eventctx.compaction.estimated_tokens.before"] > 100_000

    answers = []
    for protocol in PROTOCOLS:
        url = url_of(jaeger, protocol)
        await asyncio.to_thread(trace, store, source.stem, "--otlp", url)
        answers.append(assert_jaeger_shows(query, spans))
    assert answers[0] == answers[1]
    found = query.find(service, tags={"gen_ai.conversation.compacted": True})
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
    imported = await asyncio.to_thread(
        CliRunner().invoke,
        cli,
        ["import", str(recorded_sessions / recorded), "--complete", "--store", str(store)],
    )
    assert imported.exit_code == 0, imported.output
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
    outcomes = {one.tags["eventctx.outcome"] for one in both}
    assert outcomes == {"unfinished", "ok"}
