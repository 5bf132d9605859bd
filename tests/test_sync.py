"""The API without async: the same scenarios through both, in a running loop, and at its ends."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import eventctx
import eventctx.sync
from eventctx.errors import InvalidMessage, InvalidSetting, NotAStore
from tests.sessions import USER
from tests.sync_stub import STUB, made

# -- the same scenarios through both ---------------------------------------------------------------


@asynccontextmanager
async def entered(block: Any) -> AsyncIterator[Any]:
    """A block of either API; these tests run in a loop, as a notebook does."""
    if hasattr(block, "__aenter__"):
        async with block as inside:
            yield inside
    else:
        with block as inside:
            yield inside


async def got(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


async def each(answers: Any) -> list[Any]:
    return [one async for one in answers] if hasattr(answers, "__aiter__") else list(answers)


@pytest.fixture(params=["async", "sync"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    opening: Any = eventctx.open if request.param == "async" else eventctx.sync.open
    async with entered(opening(tmp_path / "s.db", receipts=False)) as opened:
        yield opened


async def test_a_loop_is_recorded_inside_its_turn(engine: Any) -> None:
    ctx = await got(engine.session("s", max_tokens=9_000))
    for number in (1, 2):
        async with entered(ctx.turn()) as turn:
            assert turn.number == number
            assert (await got(ctx.add_message(USER))).number == 2 * number - 2
            async with entered(turn.iteration()) as cycle:
                call = cycle.provider_call("m")
                rows = await got(ctx.get_messages_for_request(call=call))
                async with entered(call):
                    await got(call.usage(10, 2))
                    call.finished("stop")
                await got(ctx.add_message({"role": "assistant", "content": "Yes."}))
                async with entered(cycle.tool_call("read", "c1")) as tool:
                    tool.answered("x")
    assert len(rows) == 3
    found = [(r.type, r.turn_id is not None, r.iteration) for r in await each(engine.records("s"))]
    assert found[1:] == 2 * [
        ("prompt:submit", True, None),
        ("context:message_added", True, None),
        ("context:request_prepared", True, 1),
        ("provider:request", True, 1),
        ("usage:reported", True, 1),
        ("provider:response", True, 1),
        ("context:message_added", True, 1),
        ("tool:pre", True, 1),
        ("tool:post", True, 1),
        ("prompt:complete", True, None),
    ]


async def test_messages_are_pinned_compacted_asked_for_and_found(engine: Any) -> None:
    ctx = await got(engine.session("s", policy="truncate", keep_recent=2))
    for number in range(6):
        await got(ctx.add_message({"role": "user", "content": f"word{number}"}))
    await got(ctx.pin(1))
    result = await got(ctx.compact(force=True))
    assert result.outcome == "applied"
    assert "word1" in str(await got(ctx.get_messages_for_request()))
    assert (await got(engine.why("s", 3))).in_view is False
    assert [one.number for one in await got(engine.recall("word3"))] == [3]
    tool = ctx.recall_tool()
    assert "word3" in await got(tool({"query": "word3"}))
    assert (await got(engine.verify("s"))).ok
    assert [one.stream for one in await each(engine.each_session())] == ["s"]
    assert engine.receipts_path is None


async def test_errors_are_the_same_and_have_the_whole_traceback(engine: Any) -> None:
    ctx = await got(engine.session("s"))
    with pytest.raises(InvalidMessage) as caught:
        await got(ctx.add_message({"role": "user", "content": {1}}))
    names = {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert {"add_message", "plain_message"} <= names
    assert Path(__file__).name in "".join(traceback.format_tb(caught.value.__traceback__))
    with pytest.raises(ValueError, match="mine"):
        async with entered(ctx.turn()):
            raise ValueError("mine")
    last = (await each(engine.records("s")))[-1]
    assert last.type == "prompt:complete"


async def test_hooks_hear_of_records(engine: Any) -> None:
    heard: list[str] = []
    engine.on("context:*", lambda record: heard.append(record.type))
    ctx = await got(engine.session("s"))
    await got(ctx.add_message(USER))
    await got(engine.close())
    assert heard == ["context:message_added"]


# -- the thread ------------------------------------------------------------------------------------


def test_each_thread_is_in_its_own_turn() -> None:
    with eventctx.sync.open() as engine:
        ctx = engine.session("s")
        with ctx.turn() as turn:
            asyncio.run(asyncio.to_thread(lambda: ctx.add_message(USER)))
            ctx.add_message(USER)
        added = [r.turn_id for r in engine.records("s") if r.type == "context:message_added"]
        assert added == [None, turn.turn_id]


def test_a_call_from_inside_the_engine_is_refused_instead_of_waiting_for_good() -> None:
    with eventctx.sync.open() as engine:
        ctx = engine.session("s")

        async def summary(request: Any) -> str:
            ctx.get_messages()
            return "never"

        other = engine.session("t", policy="summarize", summarizer=summary, max_tokens=8_000)
        for number in range(20):
            other.add_message({"role": "user", "content": f"{number} " + "word " * 300})
        result = other.compact(budget=4_000, force=True)
        assert "expected a call from a thread of the program" in str(result.error)


def test_what_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no store" * 200)
    with pytest.raises(NotAStore):
        eventctx.sync.open(tmp_path / "text")
    engine = eventctx.sync.open()
    engine.close()
    with pytest.raises(InvalidSetting, match="found a closed one"):
        engine.session("s")


PROGRAM = """
import sys, time
import eventctx.sync

async def summary(request):
    print("asked", flush=True)
    import asyncio
    await asyncio.sleep(60)

engine = eventctx.sync.open(sys.argv[1], receipts=False)
ctx = engine.session("s", policy="summarize", summarizer=summary, max_tokens=8_000)
for number in range(20):
    ctx.add_message({"role": "user", "content": f"{number} " + "word " * 300})
if sys.argv[2] == "compact":
    ctx.compact(budget=4_000, force=True)
"""


@pytest.mark.parametrize("how", ["interrupted", "dropped"])
def test_a_program_that_ends_leaves_the_store_whole_and_unlocked(how: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    work = "compact" if how == "interrupted" else "nothing"
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(path), work],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        if how == "interrupted":
            assert child.stdout is not None
            assert child.stdout.readline() == "asked\n"
            child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=60)
    if how == "interrupted":
        assert child.returncode != 0
        assert "KeyboardInterrupt" in error
    else:
        assert (child.returncode, error) == (0, "")
    with eventctx.sync.open(path, lock_timeout=0.2, receipts=False) as engine:
        types = [record.type for record in engine.records("s")]
        assert types.count("context:message_added") == 20
        assert types.count("context:pre_compact") == types.count("context:post_compact")
        assert engine.verify("s").ok


# -- its types -------------------------------------------------------------------------------------


def test_the_stub_is_that_of_the_async_classes(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.pyi"
    fresh.write_text(made(), encoding="utf-8")
    for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        config = ["--config", str(STUB.parents[2] / "pyproject.toml")]
        subprocess.run(
            [sys.executable, "-m", "ruff", command[0], *config, *command[1:], str(fresh)],
            check=True,
        )
    assert STUB.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), (
        "run `python -m tests.sync_stub`"
    )
