"""Screens for a person: the rows that tell something, whole numbers at any width, no base64."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from tests.cli.conftest import say


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a command shows on a terminal of some width."""

    def shown(width: int, *arguments: object) -> str:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(width))
        out = CliRunner().invoke(cli, [str(one) for one in arguments]).output
        return re.sub(r"\x1b\[[0-9;]*m", "", out)

    return shown


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Two turns of 15 requests; the view is compacted behind the sixth."""
    path = tmp_path / "s.db"
    options: Any = {"policy": "truncate", "max_tokens": 100_000, "auto_compact": False}

    async def write() -> None:
        async with eventctx.open(path) as engine:
            ctx = await engine.session("long", **options)
            for turn in range(2):
                async with ctx.turn() as block:
                    await ctx.add_message({"role": "user", "content": f"Task {turn}"})
                    for step in range(15):
                        async with block.iteration():
                            await ctx.get_messages_for_request()
                            words = {"role": "assistant", "content": f"Step {step} " * 50}
                            await ctx.add_message(words)
                        if (turn, step) == (0, 5):
                            await ctx.compact(reason="now")

    asyncio.run(write())
    return path


def requests(text: str) -> list[str]:
    return re.findall(r"^ *(\d+\.\d+) ", text, re.MULTILINE)


def test_a_terminal_shows_the_last_request_of_a_turn_or_all_and_those_around_compactions(
    on_terminal: Any, run: Any, long: Path
) -> None:
    audit = run("audit", "long", "--json").document
    names = [row["request"] for row in audit["requests"]]
    assert len(names) == 30
    assert requests(run("audit", "long").out) == names, "a pipe gets every request"
    shown = on_terminal(100, "audit", "long")
    assert len(audit["compactions"]) == 1
    assert requests(shown) == ["1.1", "1.6", "1.7", "1.15", "2.15"]
    assert "--all shows the rest" in shown
    every = on_terminal(100, "audit", "long", "--all")
    assert requests(every) == names and "--all" not in every
    assert requests(on_terminal(100, "audit", "long", "--turn", 2)) == names[15:]
    last = run("view", "long").out
    assert f"request {names[-1]} " in last.splitlines()[0]
    assert last == run("view", "long", "--turn", names[-1]).out
    assert run("view", "long", "--turn", 1, "--position", 3).code == 2


@pytest.mark.parametrize("width", [30, 60])
def test_no_figure_of_a_table_is_broken(
    width: int, on_terminal: Any, run: Any, store: Path
) -> None:
    rows = run("audit", "work", "--json").document["requests"]
    tokens = [f"{row['tokens']:,}" for row in rows]
    narrow = on_terminal(width, "audit", "work")
    assert tokens and all(one in narrow for one in tokens)
    assert max(map(len, narrow.splitlines())) <= width


def test_base64_is_cut_in_a_pipe_and_whole_where_it_is_asked_for(run: Any, tmp_path: Path) -> None:
    data = base64.b64encode(hashlib.shake_256(b"noise").digest(3000)).decode()
    say(tmp_path / "s.db", "one", f"Look: {data} there.")
    cut = run("transcript", "one").ok("(4,000 characters of base64) there.")
    assert data[100:200] not in cut
    run("transcript", "one", "--full").ok(data)
    run("transcript", "one", "--json").ok(data)
    run("view", "one").fails("has no request; `eventctx transcript`")
