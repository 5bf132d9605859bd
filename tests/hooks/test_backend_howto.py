"""The how-tos of backends: a Collector reads our log lines; the demo's spans have the tags."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import yaml
from click.testing import CliRunner
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.cli.main import cli
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


# -- traces in Jaeger ------------------------------------------------------------------------------


GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "trace-a-compaction-in-jaeger.md"
SHOWN_TURN = 7

_TAG = re.compile(
    r"`((?:eventctx|gen_ai|verify|error)\.[a-z_.]+[a-z_]|compaction)(?:=([^`]+)|\.…)?`"
)
_SHORT = re.compile(r"`(\.[a-z_]+)`")

Span = dict[str, Any]


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> list[Span]:
    """All spans of the shipped demonstration, as ``eventctx trace demo --json`` has them."""
    store = tmp_path_factory.mktemp("howto") / "demo.db"
    _printed("demo", "--store", store)
    lines = _printed("trace", "demo", "--json", "--store", store).splitlines()
    return [msgspec.json.decode(line) for line in lines]


def _printed(*words: object) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def _lines_with_tags() -> list[str]:
    """The rows of the page's tables: what it tells a reader to search for, or to read."""
    return [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]


def _named() -> set[tuple[str, str | None]]:
    """The tags of the page's tables, with the value where one stands beside it."""
    named: set[tuple[str, str | None]] = set()
    for line in _lines_with_tags():
        last = ""
        for key, value in _TAG.findall(line):
            named.add((key, value or None))
            last = key
        named |= {(last.rpartition(".")[0] + short, None) for short in _SHORT.findall(line)}
    return named


def _as_searched(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compactions(spans: list[Span]) -> list[Span]:
    """The compactions of the turn that the page shows, in the order of time."""
    (turn,) = [one for one in spans if one["attributes"].get("eventctx.turn.number") == SHOWN_TURN]
    found = [
        one
        for one in spans
        if one["trace_id"] == turn["trace_id"] and one["name"] == "compact workset"
    ]
    return sorted(found, key=lambda one: one["start"])


@pytest.mark.slow
def test_every_tag_of_the_page_is_on_a_span_of_the_demonstration(spans: list[Span]) -> None:
    on_spans = {
        (key, _as_searched(value)) for span in spans for key, value in span["attributes"].items()
    }
    keys = {key for key, _ in on_spans}
    named = _named()
    assert len(named) > 12
    for key, value in named:
        if value is None:
            assert any(one == key or one.startswith(f"{key}.") for one in keys), key
        else:
            assert (key, value) in on_spans, f"{key}={value}"


@pytest.mark.slow
def test_the_message_that_the_page_asks_about_is_named_by_the_second_compaction(
    spans: list[Span],
) -> None:
    asked = re.findall(
        r"^\$ eventctx why demo (\d+)$", GUIDE.read_text("utf-8"), flags=re.MULTILINE
    )
    assert len(asked) == 1
    tags = _compactions(spans)[1]["attributes"]
    assert tags["compaction"].startswith("over budget: ")
    assert re.search(rf"#{asked[0]}\b", tags["compaction"])
    assert asked[0] in re.split("[,-]", tags["eventctx.compaction.dropped.numbers"])
