"""A small session made by the engine, and a way to run the program on its store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eventctx
from eventctx.cli.main import cli

ANSI = "\x1b[31mred\x1b[0m and \x1b]0;title\x07 and \u0003 and [bold]not bold[/bold] and \u202eback"
"""A tool's output with colours, a window title, Ctrl-C's letter, rich's markup, a reversal."""


class Outcome:
    """The result of a run: its exit code, output, and errors."""

    def __init__(self, result: Result) -> None:
        self.code = result.exit_code
        self.out = result.stdout
        self.err = result.stderr
        self.exception = result.exception

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def ok(self, *words: str) -> str:
        """What was printed, with these words in it, by a command that ended well."""
        assert (self.code, self.err) == (0, ""), self.err
        assert [one for one in words if one not in self.out] == [], self.out
        return self.out

    def fails(self, *words: str, code: int = 2) -> None:
        """Nothing was printed but errors, without a traceback, and with these words in them."""
        said = " ".join(self.err.split())
        assert (self.code, self.out, "Traceback" in said) == (code, "", False), self.err
        assert said.startswith(("eventctx: ", "Usage: "))
        assert [one for one in words if one not in said] == [], said


Run = Callable[..., Outcome]


def _outside(work: Callable[[], Any]) -> Any:
    """Do what starts a loop of its own, also for a test that is in one."""
    if asyncio._get_running_loop() is None:
        return work()
    with ThreadPoolExecutor(1) as other:
        return other.submit(work).result()


def _call(*arguments: object) -> Outcome:
    words = [str(one) for one in arguments]
    return Outcome(_outside(lambda: CliRunner().invoke(cli, words)))


def say(path: Path, session: str, *said: str) -> Path:
    """Add messages of a person to a session of a store; its path."""

    async def added() -> None:
        async with eventctx.open(path) as engine:
            ctx = await engine.session(session)
            await ctx.add_messages([{"role": "user", "content": one} for one in said])

    _outside(lambda: asyncio.run(added()))
    return path


def imported(run: Run, folder: Path, data: bytes | list[Any], *options: object) -> Path:
    """Import a file ``talk.jsonl`` with these bytes or messages; the store ``s.db``."""
    file = folder / "talk.jsonl"
    rows = data if isinstance(data, bytes) else "\n".join(map(json.dumps, data)).encode()
    file.write_bytes(rows)
    done = run("import", file, "--store", folder / "s.db", *options)
    assert done.code == 0, done.err
    return folder / "s.db"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the program in this process, on the store ``s.db`` where no other is named."""
    monkeypatch.setenv("EVENTCTX_STORE", str(tmp_path / "s.db"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return _call


def _use(number: int) -> list[dict[str, Any]]:
    return [
        {"type": "thinking", "thinking": f"step {number}", "signature": "c2ln"},
        {"type": "text", "text": f"Reading file {number}."},
        {"type": "tool_use", "id": f"a{number}", "name": "read", "input": {"path": f"{number}.py"}},
        {"type": "tool_use", "id": f"b{number}", "name": "grep", "input": {"pattern": "x"}},
    ]


def _results(number: int) -> list[dict[str, Any]]:
    text = ANSI if number == 0 else f"contents of {number} " * 60
    return [
        {"type": "tool_result", "tool_use_id": f"a{number}", "content": text},
        {"type": "tool_result", "tool_use_id": f"b{number}", "content": "no", "is_error": True},
    ]


async def write(path: Path, session: str, turns: int = 3, rounds: int = 3) -> None:
    """A tool loop of three turns under a budget that forces compactions."""
    async with eventctx.open(path) as engine:
        ctx = await engine.session(session, max_tokens=3_000, policy="ladder")
        await ctx.add_message({"role": "system", "content": "Be brief."})
        for turn in range(turns):
            async with ctx.turn() as block:
                await ctx.add_message({"role": "user", "content": f"Task {turn}: look around."})
                for number in range(turn * rounds, turn * rounds + rounds):
                    async with block.iteration() as iteration:
                        await ctx.get_messages_for_request()
                        async with iteration.provider_call("model-1") as call:
                            await call.usage(900, 20, cache_read=100)
                        await ctx.add_message({"role": "assistant", "content": _use(number)})
                        async with iteration.tool_call("read", f"a{number}"):
                            pass
                        await ctx.add_message({"role": "user", "content": _results(number)})
                async with block.iteration():
                    await ctx.get_messages_for_request()
                    await ctx.add_message({"role": "assistant", "content": f"Done {turn}."})


@pytest.fixture(scope="session")
def _written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "s.db"
    asyncio.run(write(path, "work"))
    return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path, _written: bytes) -> Path:
    """The store ``s.db`` with the session ``work``: 3 turns of 4 iterations, and compactions."""
    path = tmp_path / "s.db"
    path.write_bytes(_written)
    return path
