"""Whatever becomes of the log, the agent never notices, and what failed is counted."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

import eventctx
from eventctx.hooks.log import LogSink, configure_logging
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from tests.hooks.given import Session, whole_turn

SINK = "eventctx.hooks.log.LogSink"


@pytest.fixture(autouse=True)
def _structlog_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


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


async def test_a_log_whose_stream_is_closed_is_counted_and_the_turn_goes_on() -> None:
    file = io.BytesIO()
    configure_logging(json=True, level="debug", file=file)
    async with eventctx.open() as engine:
        engine.on("*", LogSink())
        ctx = await engine.session("s")
        await turn(ctx)
        before = len(written(file))
        file.close()
        await turn(ctx, "on")
        await ctx.close()
        stats = engine.hooks.stats()
        assert before > 0
        assert stats.delivered[SINK] + stats.errors[SINK] == len(await records(engine))
        assert stats.delivered[SINK] == before
        assert [message["content"] for message in await ctx.get_messages()] == ["go", "on"]


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


async def test_a_handler_whose_stream_is_closed_says_so_itself_and_the_turn_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The standard library catches this: nothing reaches the sink, so nothing is counted."""
    stream = io.StringIO()
    logger = logging.Logger("a.host", logging.INFO)
    logger.addHandler(logging.StreamHandler(stream))
    stream.close()
    async with eventctx.open() as engine:
        engine.on("*", LogSink(logger))
        ctx = await engine.session("s")
        await turn(ctx)
        assert engine.hooks.stats().errors == {}
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.parametrize("cached", [True, False])
async def test_after_a_reconfiguration_lines_go_where_the_new_one_says(cached: bool) -> None:
    old, new = io.BytesIO(), io.BytesIO()
    configured(old, cached)
    async with eventctx.open() as engine:
        engine.on("*", LogSink())
        ctx = await engine.session("s")
        await turn(ctx)
        first = written(old)
        configured(new, cached)
        old.close()
        await turn(ctx)
        await ctx.close()
        stored = [record.type for record in await records(engine)]
        assert engine.hooks.stats().errors == {}
    assert first
    assert first + written(new) == stored


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


def test_a_configuration_that_is_broken_and_then_mended_loses_only_the_lines_between() -> None:
    file = io.BytesIO()
    configured(file, True)
    session, hooks = Session(), Hooks()
    hooks.on("*", LogSink())
    one, two, three = whole_turn(session)[:3]
    hooks.publish(one)

    def breaks(*_: Any) -> Any:
        raise ZeroDivisionError("a processor's bug")

    structlog.configure(processors=[breaks])
    hooks.publish(two)
    configured(file, True)
    hooks.publish(three)
    assert written(file) == [one.type, three.type]
    assert hooks.stats().errors == {SINK: 1}


def test_a_value_that_cannot_be_written_costs_its_own_line_only() -> None:
    file = io.BytesIO()
    configured(file, False)
    hooks = Hooks()

    def spoils(_logger: Any, _method: str, fields: Any) -> Any:
        return {**fields, "odd": object()} if fields["position"] == 1 else fields

    structlog.configure(processors=[spoils, *structlog.get_config()["processors"]])
    hooks.on("*", LogSink())
    session = Session()
    for record in whole_turn(session):
        hooks.publish(record)
    assert len(written(file)) == len(session.records) - 1
    assert hooks.stats().errors == {SINK: 1}
