"""The API without async: its thread, its ends, and its types (its calls: test_both_apis)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eventctx
import eventctx.sync
from eventctx.errors import InvalidSetting, NotAStore
from tests.sessions import USER
from tests.sync_stub import STUB, made

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


@pytest.mark.slow
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
