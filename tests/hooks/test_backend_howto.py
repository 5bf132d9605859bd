"""The Collector of the how-to reads what our log lines have, and joins them to our spans."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.hooks.log import LogSink, configure_logging
from eventctx.hooks.trace import TraceSink
from tests.hooks.observing import agent

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "send-traces-and-logs-to-a-backend.md"


@pytest.fixture
def operators() -> list[dict[str, Any]]:
    """What the Collector of the page does to a line."""
    shown = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    found: list[dict[str, Any]] = yaml.safe_load(shown[1])["receivers"]["filelog"]["operators"]
    return found


@pytest.fixture
async def observed() -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A run's log lines, and the trace of each of its spans."""
    file, exporter = io.BytesIO(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    configure_logging(level="debug", file=file)
    try:
        async with eventctx.open(sinks=[LogSink(), TraceSink(provider)]) as engine:
            await agent(await engine.session("s", max_tokens=2_000))
    finally:
        structlog.reset_defaults()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    spans = exporter.get_finished_spans()
    contexts = [span.context for span in spans if span.context is not None]
    return lines, {f"{one.span_id:016x}": f"{one.trace_id:032x}" for one in contexts}


def test_every_attribute_that_the_collector_reads_is_in_every_line(
    operators: list[dict[str, Any]], observed: tuple[list[dict[str, Any]], dict[str, str]]
) -> None:
    read = {name.removeprefix("attributes.") for name in _sources(operators)}
    assert read == {"time", "level", "trace_id", "span_id", "event"}
    lines, _ = observed
    assert all(read <= line.keys() for line in lines)


def test_times_have_the_layout_that_the_collector_is_told(
    operators: list[dict[str, Any]], observed: tuple[list[dict[str, Any]], dict[str, str]]
) -> None:
    parser, _ = operators
    assert parser["timestamp"]["layout"] == "2006-01-02T15:04:05.999999999Z07:00"
    lines, _ = observed
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
    assert all(form.fullmatch(line["time"]) for line in lines)


def test_every_span_has_lines_with_its_ids_and_every_line_of_a_turn_has_its_span(
    observed: tuple[list[dict[str, Any]], dict[str, str]],
) -> None:
    lines, spans = observed
    told = {line["span_id"]: line["trace_id"] for line in lines if line["turn_id"] is not None}
    assert told == spans
    assert len(spans) > 3


def _sources(value: Any) -> Iterator[str]:
    """The attributes that operators take something from."""
    match value:
        case dict():
            for name, one in value.items():
                if name in ("parse_from", "from"):
                    yield one
                else:
                    yield from _sources(one)
        case list():
            for one in value:
                yield from _sources(one)
