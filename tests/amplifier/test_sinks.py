"""``log`` and ``otlp`` in a mount plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.adapters.amplifier.config import own_names, read
from eventctx.adapters.amplifier.sinks import SinksWanted, read_sinks
from eventctx.errors import InvalidSetting
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.given import records_of
from tests.amplifier.hosts import session, tool
from tests.services.receiver import Receiver


async def run(config: dict[str, Any], **options: Any) -> None:
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})]), "Done.")
    async with session(provider, tool("read"), config=config, **options) as host:
        await host.execute("Read.")


async def test_a_mount_plan_writes_a_line_for_each_record_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "eventctx.log"
    config = {"store": str(tmp_path / "contexts.db")}
    await run({**config, "log": {"file": str(path), "level": "debug"}})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    records = await records_of(tmp_path / "contexts.db")
    assert [line["event"] for line in lines] == [record.type for record in records]
    assert {line["session_id"] for line in lines} == {"session-1"}
    assert "Read." not in path.read_text()


async def test_a_resumed_session_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "eventctx.log"
    config = {"store": str(tmp_path / "contexts.db"), "log": {"file": str(path), "format": "json"}}
    await run(config)
    first = path.read_text()
    await run(config)
    assert path.read_text().startswith(first)
    assert path.read_text().count('"event":"prompt:complete"') == 2


@pytest.mark.parametrize("setting", [None, "debug,json"])
async def test_the_environment_or_the_words_in_the_plan_write_to_standard_error(
    setting: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    if setting is None:
        monkeypatch.setenv("EVENTCTX_LOG", "debug,json")
    await run({"store": str(tmp_path / "contexts.db"), "log": setting})
    assert b'"event":"context:request_prepared"' in capfdbinary.readouterr().err


async def test_the_plan_can_turn_the_environments_lines_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("EVENTCTX_LOG", "debug")
    await run({"store": str(tmp_path / "contexts.db"), "log": False})
    assert b"prompt:submit" not in capfdbinary.readouterr().err


async def test_a_file_that_cannot_be_opened_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"store": str(tmp_path / "contexts.db"), "log": {"file": str(tmp_path)}}
    await run(config)
    assert "log lines cannot be written and are left out" in caplog.text


async def test_a_mount_plan_sends_the_spans_of_every_session_to_its_collector(
    tmp_path: Path,
) -> None:
    with Receiver() as receiver:
        config = {"store": str(tmp_path / "contexts.db"), "otlp": receiver.http}
        await run(config)
        await run(config, session_id="session-2")
        spans = receiver.spans
    records = await records_of(tmp_path / "contexts.db")
    turn = [record for record in records if record.type == "prompt:submit"]
    sent = {span.span_id for span in spans}
    assert {record.span_id for record in turn} <= sent
    assert {"read"} <= {str(span.attributes.get("gen_ai.tool.name")) for span in spans}
    assert len({span.trace_id for span in spans}) == 2


async def test_a_mount_plan_names_the_dialect_of_its_spans(tmp_path: Path) -> None:
    with Receiver() as receiver:
        otlp = {"url": receiver.http, "dialect": "openinference"}
        await run({"store": str(tmp_path / "contexts.db"), "otlp": otlp})
        spans = receiver.spans
    kinds = {span.attributes["openinference.span.kind"] for span in spans}
    assert kinds == {"AGENT", "LLM", "TOOL"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"log": "loud"}, r"log: expected debug, .*console, found 'loud'"),
        ({"log": 3}, "log: expected true, words such as 'debug,json', or a mapping"),
        ({"log": {"path": "x"}}, "log: expected true, words"),
        ({"log": {"file": 3}}, "log.file: expected a text, found 3"),
        ({"otlp": 4318}, "otlp: expected a collector's URL, found 4318"),
        ({"otlp": {"dialect": "openinference"}}, "with url and dialect, found one with dialect"),
        ({"otlp": {"url": "http://x:1", "kind": "y"}}, "and dialect, found one with url, kind"),
        ({"otlp": {"url": 3}}, "otlp: expected a collector's URL, found 3"),
        (
            {"otlp": {"url": "http://x:1", "dialect": "y"}},
            "dialect: expected one of genai, openinference, found 'y'",
        ),
        ({"otlp": "localhost"}, "OTLP: expected http://HOST:4318"),
    ],
)
def test_a_wrong_setting_is_told_at_mount(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        read(config, own_names)


def test_without_them_no_sink_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENTCTX_LOG", raising=False)
    assert read_sinks(None, None) == read_sinks(False, False) == SinksWanted()
