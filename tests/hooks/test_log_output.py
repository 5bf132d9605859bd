"""Levels and formats by environment, and a log that fails: it is counted."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from msgspec.json import encode

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.hooks.log import LogSink, configure_logging
from eventctx.hooks.trace import TraceSink
from tests.hooks.given import Session, call_model, publish, recorded, whole_turn
from tests.sessions import user

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


async def a_turn() -> None:
    name = "a-session-with-a-name-that-goes-on-and-on-" + "x" * 120
    async with eventctx.open(sinks=[LogSink()]) as engine:
        ctx = await engine.session(name, max_tokens=3_000)
        async with ctx.turn() as turn, turn.iteration() as cycle:
            for number in range(9):
                await ctx.add_message(user(f"{number} " + "word " * 300))
            await ctx.get_messages_for_request()
            await call_model(cycle, "a-model-" + "y" * 90)


async def printed(monkeypatch: pytest.MonkeyPatch, chosen: str, **options: Any) -> list[str]:
    monkeypatch.setenv("EVENTCTX_LOG", chosen)
    out = io.BytesIO()
    configure_logging(file=out, **options)
    await a_turn()
    return out.getvalue().decode().splitlines()


async def test_the_environment_chooses_level_and_format_but_what_the_program_says_goes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all(json.loads(text)["level"] == "info" for text in await printed(monkeypatch, "json"))
    debug = [json.loads(text) for text in await printed(monkeypatch, "debug,json")]
    assert {"debug", "info"} <= {one["level"] for one in debug}
    assert len(debug[-1]["span_id"]) == 16
    assert "context:message_added" in str(await printed(monkeypatch, "Console, DEBUG"))
    assert await printed(monkeypatch, "error") == []
    for chosen in ("debug,console", "loud"):
        assert await printed(monkeypatch, chosen, json=True, level="error") == []
    with pytest.raises(InvalidSetting, match=r"EVENTCTX_LOG: expected debug, .*console.*'loud'"):
        configure_logging(file=io.BytesIO())


async def test_a_record_is_one_console_line_with_short_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [_COLOURS.sub("", text) for text in await printed(monkeypatch, "debug,console")]
    assert len(lines) > 12
    assert max(map(len, lines)) < 160
    assert not any(re.search(r"\b[0-9a-f]{16,}\b", text) for text in lines)
    assert all(re.search(r"span_id=[0-9a-f]{8}\b", text) for text in lines if "provider" in text)


SINK = "eventctx.hooks.log.LogSink"


def refuses(*_: Any, **__: Any) -> None:
    raise ConnectionResetError("the collector is gone")


def refusing(kind: str) -> Any:
    if kind == "structlog":
        out = SimpleNamespace(debug=refuses, info=refuses, warning=refuses)
        return structlog.wrap_logger(out, [structlog.processors.KeyValueRenderer()])
    logger, handler = logging.Logger("a.host", logging.DEBUG), logging.Handler()
    handler.emit = refuses  # type: ignore[method-assign]
    logger.addHandler(handler)
    return logger


@pytest.mark.parametrize("kind", ["structlog", "standard"])
async def test_a_logger_that_raises_is_counted_once_a_record_and_others_hear(kind: str) -> None:
    heard: list[int] = []
    async with eventctx.open() as engine:
        engine.on("*", LogSink(refusing(kind)))
        engine.on("*", lambda record: heard.append(record.position))
        engine.on("*", TraceSink())
        ctx = await engine.session("s")
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.add_message(user("go"))
            await call_model(cycle)
        await ctx.close()
        positions = [record.position for record in await recorded(engine)]
        assert heard == positions
        assert engine.hooks.stats().errors == {"eventctx.hooks.log.LogSink": len(positions)}
        assert (await engine.verify("s")).problems == ()


def written(file: io.BytesIO) -> list[str]:
    return [json.loads(text)["event"] for text in file.getvalue().splitlines()]


@pytest.mark.parametrize("cached", [True, False])
def test_a_reconfiguration_may_change_the_level_and_the_processors(cached: bool) -> None:
    file, louder = io.BytesIO(), io.BytesIO()
    structlog.configure(
        processors=[structlog.processors.JSONRenderer(lambda fields, **_: encode(fields))],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.BytesLoggerFactory(file=file),
        cache_logger_on_first_use=cached,
    )
    session, sink = Session(), LogSink()
    whole_turn(session)
    publish(session, sink)
    configure_logging(json=True, level="warning", file=louder)
    publish(session, sink)
    assert len(session.records) == len(written(file))
    assert written(louder) == ["tool:error"]
