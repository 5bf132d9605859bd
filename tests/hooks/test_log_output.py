"""Levels and formats by environment, and the short lines of a console."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.hooks.log import LogSink, configure_logging

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


async def written(monkeypatch: pytest.MonkeyPatch, chosen: str) -> list[str]:
    monkeypatch.setenv("EVENTCTX_LOG", chosen)
    out = io.BytesIO()
    configure_logging(file=out)
    await a_turn()
    return out.getvalue().decode().splitlines()


async def test_the_environment_chooses_level_and_format(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(json.loads(text)["level"] == "info" for text in await written(monkeypatch, "json"))
    debug = [json.loads(text) for text in await written(monkeypatch, "debug,json")]
    assert {"debug", "info"} <= {one["level"] for one in debug}
    assert len(debug[-1]["span_id"]) == 16
    assert "context:message_added" in str(await written(monkeypatch, "Console, DEBUG"))
    assert await written(monkeypatch, "error") == []


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
    lines = [_COLOURS.sub("", text) for text in await written(monkeypatch, "debug,console")]
    assert len(lines) > 12
    assert max(map(len, lines)) < 160
    assert not any(re.search(r"\b[0-9a-f]{16,}\b", text) for text in lines)
    assert all(re.search(r"span_id=[0-9a-f]{8}\b", text) for text in lines if "provider" in text)


async def test_a_sink_alone_listens_to_the_environment(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("EVENTCTX_LOG", "json")
    await a_turn()
    lines = capfdbinary.readouterr().err.splitlines()
    assert "prompt:submit" in [json.loads(text)["event"] for text in lines]
    assert not structlog.is_configured()
