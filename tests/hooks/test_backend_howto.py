"""The how-tos of backends: a Collector reads our log lines; the demo's spans have the tags."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
import structlog
import yaml
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.hooks.log import LogSink, configure_logging
from eventctx.hooks.trace import TraceSink
from tests.hooks.measured import exporting
from tests.hooks.observing import agent

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "send-traces-and-logs-to-a-backend.md"


async def test_the_collector_finds_what_it_reads_in_every_line_and_spans_have_lines() -> None:
    shown = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    operators = yaml.safe_load(shown[1])["receivers"]["filelog"]["operators"]
    file, (provider, exporter) = io.BytesIO(), exporting()
    configure_logging(level="debug", file=file)
    try:
        async with eventctx.open(sinks=[LogSink(), TraceSink(provider)]) as engine:
            await agent(await engine.session("s", max_tokens=2_000))
    finally:
        structlog.reset_defaults()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]

    read = set(re.findall(r"\b(?:parse_from|from): attributes\.(\w+)", shown[1]))
    assert read == {"time", "level", "trace_id", "span_id", "event"}
    assert all(read <= line.keys() for line in lines)
    assert operators[0]["timestamp"]["layout"] == "2006-01-02T15:04:05.999999999Z07:00"
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
    assert all(form.fullmatch(line["time"]) for line in lines)
    told = {line["span_id"]: line["trace_id"] for line in lines if line["turn_id"] is not None}
    spans = [span.context for span in exporter.get_finished_spans() if span.context]
    assert told == {f"{one.span_id:016x}": f"{one.trace_id:032x}" for one in spans}
    assert len(spans) > 3


# -- traces in Jaeger ------------------------------------------------------------------------------


GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "trace-a-compaction-in-jaeger.md"
SHOWN_TURN = 7

_TAG = re.compile(
    r"`((?:eventctx|gen_ai|verify|error)\.[a-z_.]+[a-z_]|compaction)(?:=([^`]+)|\.…)?`"
)
_SHORT = re.compile(r"`(\.[a-z_]+)`")


@pytest.mark.slow
def test_the_tags_of_the_page_and_the_message_that_it_asks_about_are_in_the_demonstration(
    tmp_path: Path,
) -> None:
    printed = [
        CliRunner().invoke(cli, [*command, "--store", str(tmp_path / "demo.db")])
        for command in (["demo"], ["trace", "demo", "--json"])
    ]
    assert [done.exit_code for done in printed] == [0, 0], printed
    spans = [msgspec.json.decode(line) for line in printed[1].stdout.splitlines()]
    on_spans = {
        (key, str(value).lower() if isinstance(value, bool) else str(value))
        for span in spans
        for key, value in span["attributes"].items()
    }
    # The tags that the page's tables tell a reader to search for, and their values, if any.
    named: set[tuple[str, str | None]] = set()
    for line in GUIDE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            tags = _TAG.findall(line)
            named |= {(key, value or None) for key, value in tags}
            folder = tags[-1][0].rpartition(".")[0] if tags else ""
            named |= {(folder + short, None) for short in _SHORT.findall(line)}
    assert len(named) > 12
    for key, value in named:
        if value is None:
            assert any(f"{one}.".startswith(f"{key}.") for one, _ in on_spans), key
        else:
            assert (key, value) in on_spans, f"{key}={value}"

    (asked,) = re.findall(r"(?m)^\$ eventctx why demo (\d+)$", GUIDE.read_text("utf-8"))
    (turn,) = [one for one in spans if one["attributes"].get("eventctx.turn.number") == SHOWN_TURN]
    compactions = [one for one in spans if one["name"] == "compact workset"]
    found = [one for one in compactions if one["trace_id"] == turn["trace_id"]]
    tags = sorted(found, key=lambda one: one["start"])[1]["attributes"]
    assert tags["compaction"].startswith("over budget: ")
    assert re.search(rf"#{asked}\b", tags["compaction"])
    assert asked in re.split("[,-]", tags["eventctx.compaction.dropped.numbers"])
