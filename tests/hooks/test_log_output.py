"""Levels and formats by environment, and a log that fails: it is counted."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.hooks.log import LogSink, configure_logging
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from tests.hooks.given import Session, whole_turn

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


async def a_turn(out: Any = None) -> None:
    name = "a-session-with-a-name-that-goes-on-and-on-" + "x" * 120
    async with eventctx.open(sinks=[LogSink()]) as engine:
        ctx = await engine.session(name, max_tokens=3_000)
        async with ctx.turn() as turn, turn.iteration() as cycle:
            for number in range(9):
                await ctx.add_message({"role": "user", "content": f"{number} " + "word " * 300})
            await ctx.get_messages_for_request()
            async with cycle.provider_call("a-model-" + "y" * 90, "anthropic") as call:
                await call.usage(10, 2)


async def printed(monkeypatch: pytest.MonkeyPatch, chosen: str) -> list[str]:
    monkeypatch.setenv("EVENTCTX_LOG", chosen)
    out = io.BytesIO()
    configure_logging(file=out)
    await a_turn()
    return out.getvalue().decode().splitlines()


async def test_the_environment_chooses_level_and_format(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(json.loads(text)["level"] == "info" for text in await printed(monkeypatch, "json"))
    debug = [json.loads(text) for text in await printed(monkeypatch, "debug,json")]
    assert {"debug", "info"} <= {one["level"] for one in debug}
    assert len(debug[-1]["span_id"]) == 16
    assert "context:message_added" in str(await printed(monkeypatch, "Console, DEBUG"))
    assert await printed(monkeypatch, "error") == []


async def test_what_the_program_says_goes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVENTCTX_LOG", "debug,console")
    out = io.BytesIO()
    configure_logging(json=True, level="error", file=out)
    await a_turn()
    assert out.getvalue() == b""
    monkeypatch.setenv("EVENTCTX_LOG", "loud")
    configure_logging(json=True, level="error", file=out)
    with pytest.raises(InvalidSetting, match=r"EVENTCTX_LOG: expected debug, .*console.*'loud'"):
        configure_logging(file=out)


async def test_a_record_is_one_line_of_a_console_with_short_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [_COLOURS.sub("", text) for text in await printed(monkeypatch, "debug,console")]
    assert len(lines) > 12
    assert max(map(len, lines)) < 160
    assert not any(re.search(r"\b[0-9a-f]{16,}\b", text) for text in lines)
    assert all(re.search(r"span_id=[0-9a-f]{8}\b", text) for text in lines if "provider" in text)


SINK = "eventctx.hooks.log.LogSink"


async def turn(ctx: eventctx.Context, text: str = "go") -> None:
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.add_message({"role": "user", "content": text})
        assert await ctx.get_messages_for_request()
        async with cycle.provider_call("m") as call:
            await call.usage(10, 2)


def configured(file: io.BytesIO, cached: bool) -> None:
    structlog.configure(
        processors=[structlog.processors.JSONRenderer(serializer=_json)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.BytesLoggerFactory(file=file),
        cache_logger_on_first_use=cached,
    )


def _json(value: Any, **_: Any) -> bytes:
    return json.dumps(value).encode()


def written(file: io.BytesIO) -> list[str]:
    return [json.loads(text)["event"] for text in file.getvalue().splitlines()]


async def records(engine: eventctx.Engine) -> list[eventctx.Record]:
    return [record async for record in engine.records("s")]


class Refuses:
    """A structlog output that raises at every line."""

    def msg(self, *_: Any, **__: Any) -> None:
        raise ConnectionResetError("the collector is gone")

    debug = info = warning = msg


class Raises(logging.Handler):
    """A handler that does not catch its own errors."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionResetError("the collector is gone")


def refusing(kind: str) -> Any:
    if kind == "standard":
        logger = logging.Logger("a.host", logging.DEBUG)
        logger.addHandler(Raises())
        return logger
    return structlog.wrap_logger(Refuses(), [structlog.processors.KeyValueRenderer()])


@pytest.mark.parametrize("kind", ["structlog", "standard"])
async def test_a_logger_that_raises_is_counted_once_a_record_and_others_still_hear(
    kind: str,
) -> None:
    heard: list[int] = []
    async with eventctx.open() as engine:
        engine.on("*", LogSink(refusing(kind)))
        engine.on("*", lambda record: heard.append(record.position))
        engine.on("*", TraceSink())
        ctx = await engine.session("s")
        await turn(ctx)
        await ctx.close()
        positions = [record.position for record in await records(engine)]
        assert heard == positions
        assert engine.hooks.stats().errors == {SINK: len(positions)}
        assert (await engine.verify("s")).problems == ()


@pytest.mark.parametrize("cached", [True, False])
def test_a_reconfiguration_may_change_the_level_and_the_processors(cached: bool) -> None:
    file = io.BytesIO()
    configured(file, cached)
    session, hooks = Session(), Hooks()
    hooks.on("*", LogSink())
    for record in whole_turn(session):
        hooks.publish(record)
    every = len(written(file))
    louder = io.BytesIO()
    configure_logging(json=True, level="warning", file=louder)
    for record in session.records:
        hooks.publish(record)
    assert every == len(session.records) == len(written(file))
    assert written(louder) == ["tool:error"]
    assert not hooks.stats().errors
