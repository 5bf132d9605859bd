"""A real process is killed, or stays alive, while one of two tools runs; another one goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.log.codec import decode_event
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.fold import fold as spans_of
from eventctx.projections.trace.spans import Span
from eventctx.projections.view.entries import ANSWER_KEPT, CALL_NOT_ENDED
from tests.children import started

ROOT = Path(__file__).parents[2]
GO_ON = {"role": "user", "content": "Go on."}

pytestmark = pytest.mark.slow


def program(path: Path) -> AbstractContextManager[subprocess.Popen[Any]]:
    return started(
        [sys.executable, ROOT / "tests" / "programs" / "two_tools.py", path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def statuses(engine: eventctx.Engine) -> list[tuple[str, str]]:
    """Type and status of every end of a tool call or a turn, in order."""
    found = []
    async for record in engine.records("s"):
        if record.type in ("tool:post", "tool:error", "prompt:complete"):
            event: Any = decode_event(record)
            found.append((record.type, getattr(event, "status", "ok")))
    return found


async def spans(engine: eventctx.Engine) -> dict[str, Span]:
    records = [record async for record in engine.records("s")]
    return {span.name: span for span in spans_of(records) if span.attributes[conv.OUTCOME] != "ok"}


async def test_what_was_killed_ends_as_lost_and_the_answer_of_the_other_tool_is_shown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    with program(path) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.kill()
        child.wait()
    async with eventctx.open(path) as engine:
        assert {span.attributes[conv.OUTCOME] for span in (await spans(engine)).values()} == {
            "unfinished"
        }
        silent = [record async for record in engine.records("s")][-1].time
        ctx = await engine.session("s")
        async with ctx.turn("second"):
            await ctx.add_message(GO_ON)
            shown = await ctx.get_messages_for_request()
        await engine.close_session("s")
        assert shown[2:] == [
            {
                "role": "tool",
                "tool_call_id": "quick",
                "content": f"{ANSWER_KEPT}The quick answer.",
            },
            {"role": "tool", "tool_call_id": "slow", "content": CALL_NOT_ENDED},
            GO_ON,
        ]
        assert await statuses(engine) == [
            ("tool:post", "ok"),
            ("tool:error", "lost"),
            ("prompt:complete", "lost"),
            ("prompt:complete", "ok"),
        ]
        lost = await spans(engine)
        assert lost.keys() == {"execute_tool slow", "invoke_agent"}
        for span in lost.values():
            assert (span.attributes[conv.OUTCOME], span.status) == ("lost", "error")
            assert span.attributes[conv.ERROR_TYPE] == "ProcessEnded"
            assert span.end == silent
        for row in (await engine.audit("s")).requests:
            assert (await engine.request_view("s", position=row.position)).verified
        assert (await engine.verify("s")).ok


async def test_a_process_that_is_alive_after_all_ends_its_turn_itself(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with program(path) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "ready\n"
        async with eventctx.open(path) as engine:
            ctx = await engine.session("s")
            async with ctx.turn("second"):
                await ctx.add_message(GO_ON)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "ended\n"
            assert child.wait() == 0
            assert await statuses(engine) == [
                ("tool:post", "ok"),
                ("tool:error", "lost"),
                ("prompt:complete", "lost"),
                ("prompt:complete", "ok"),
                ("tool:post", "ok"),
                ("prompt:complete", "ok"),
            ]
            assert (await engine.verify("s")).ok
            async with ctx.turn("third"):
                shown = await ctx.get_messages_for_request()
            assert [row["content"] for row in shown[2:]] == [
                "The quick answer.",
                "The slow answer.",
                "Go on.",
            ]
            for row in (await engine.audit("s")).requests:
                assert (await engine.request_view("s", position=row.position)).verified
