"""``watch`` and ``import --follow`` as processes: killed at any moment, stopped by Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

import eventctx
from eventctx.importers.load import import_file
from eventctx.log.record import Record
from tests.children import started
from tests.cli.conftest import Run
from tests.cli.schemas import published, without_other_keys
from tests.how_much import some
from tests.importers.given import SESSION, ClaudeCode, call, story, text
from tests.importers.growing import claude_code

pytestmark = pytest.mark.slow

PATIENCE = 60.0
"""Seconds that a test waits for what takes a fraction of one, on a busy machine."""

WRITER = """
import random, sys, threading, time
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
data, path, seed = open(sys.argv[1], "rb").read(), sys.argv[2], int(sys.argv[3])
draw = random.Random(seed)
with open(path, "wb", buffering=0) as file:
    start = 0
    while start < len(data):
        stop = start + draw.choice((3, 50, 400, 2500))
        file.write(data[start:stop])
        start = stop
        time.sleep(draw.choice((0.0, 0.01, 0.04)))
        if start > len(data) / 2:
            told.wait(0.5)
"""
"""Writes a file in pieces, the second half slowly until its input is closed."""


class Program(NamedTuple):
    """A process of the program, and the file that its lines go to."""

    process: subprocess.Popen[bytes]
    out: Path

    @property
    def lines(self) -> list[str]:
        return self.out.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()

    def sessions(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.lines]
        return [one["session"] for one in found if one["kind"] == "session"]

    def kill(self) -> None:
        """As ``kill -9``: nothing of the program's own runs after it."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self, by: int = signal.SIGINT) -> int:
        self.process.send_signal(by)
        return self.process.wait(PATIENCE)

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, self.lines
            assert self.process.poll() is None, self.lines
            time.sleep(0.01)


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the program; what still runs is killed at the end."""
    programs: list[Program] = []
    with contextlib.ExitStack() as stack:

        def begun(*arguments: object, **environment: str) -> Program:
            command = [sys.executable, "-u", "-m", "eventctx.cli", *arguments]
            out = tmp_path / f"out-{len(programs)}"
            file = stack.enter_context(out.open("wb"))
            given = {**os.environ, **environment}
            process = stack.enter_context(started(command, stdout=file, env=given))
            programs.append(Program(process, out))
            return programs[-1]

        yield begun


@pytest.fixture
def live(tmp_path: Path) -> Path:
    (tmp_path / "live").mkdir()
    return tmp_path / "live"


async def read(store: Path, *files: Path) -> list[Record]:
    """The records of the session, once these files are imported."""
    async with eventctx.open(store) as engine:
        for file in files:
            await import_file(engine.store, file)
        return [record async for record in engine.store.read(SESSION)]


def plain(records: list[Record]) -> Any:
    return story([one for one in records if one.type != "session:linked"])


@pytest.mark.parametrize("seed", range(some(1, 4)))
def test_killed_at_any_moment_it_goes_on_and_doubles_nothing(
    seed: int, tmp_path: Path, live: Path, start: Start
) -> None:
    draw = random.Random(seed)  # noqa: S311 - a seeded draw
    whole, store = tmp_path / "whole.jsonl", tmp_path / "s.db"
    log = ClaudeCode().user("go")
    for number in range(150):
        log.answer(f"m{number}", text("a" * 50), call(f"t{number}")).result(f"t{number}", "x" * 90)
        log.progress(hook="é").user(f"and {number}")
    whole.write_bytes(log.data())
    file = live / "session.jsonl"
    line = [sys.executable, "-c", WRITER, whole, file, str(seed)]
    writer = subprocess.Popen(line, stdin=subprocess.PIPE)
    assert writer.stdin is not None
    kills = 0
    while writer.poll() is None:
        program = start("--store", store, "watch", live, "--json")
        program.until(lambda program=program: len(program.lines) > 0)
        time.sleep(draw.uniform(0.0, 1.2))
        program.kill()
        kills += 1
        if kills == 2:
            writer.stdin.close()
    assert kills >= 2
    last = start("--store", store, "import", "--follow", live, "--json")
    before = len(log.data())
    end = log.user("the end").data()[before:]
    for path in (file, whole):
        with path.open("ab") as opened:
            opened.write(end)
    last.until(lambda: any(one["messages"] == 452 for one in last.sessions()))
    assert last.stop() == 0
    ours = asyncio.run(read(store))
    assert plain(ours) == plain(asyncio.run(read(tmp_path / "other.db", whole)))
    assert len({record.id for record in ours}) == len(ours)


def test_ctrl_c_ends_it_with_the_total(tmp_path: Path, live: Path, start: Start) -> None:
    (live / "a.jsonl").write_bytes(claude_code())
    program = start("--store", tmp_path / "s.db", "watch", live)
    program.until(lambda: len(program.lines) > 1)
    assert program.stop() == 0
    assert program.lines[0] == "watching 1 path; Ctrl-C ends it"
    assert program.lines[1].startswith(f"{SESSION}  claude-code  ")
    assert program.lines[-1].startswith("total: 1 session, ")
    (live / "b.jsonl").write_bytes(ClaudeCode("new").user("go").answer("m", text("done")).data())
    again = start("--store", tmp_path / "s.db", "watch", live)
    # The look that finds the new file passes over the other one.
    again.until(lambda: any(line.startswith("new  ") for line in again.lines))
    assert again.stop(signal.SIGTERM) == 0
    assert again.lines[-1] == "1 file not read, as nothing changed since an earlier watch"


def test_log_and_list_show_it_live(tmp_path: Path, live: Path, start: Start, run: Run) -> None:
    store, file = tmp_path / "s.db", live / "a.jsonl"
    log = ClaudeCode().user("first")
    file.write_bytes(log.data())
    watching = start("--store", store, "watch", live, "--json")
    watching.until(lambda: len(watching.sessions()) == 1)
    following = start("--store", store, "log", SESSION, "-f")
    following.until(lambda: any("first" in line for line in following.lines))
    before = len(log.data())
    with file.open("ab") as opened:
        opened.write(log.user("second").data()[before:])
    following.until(lambda: any("second" in line for line in following.lines))
    assert watching.stop() == 0
    line_of_watch = jsonschema.Draft202012Validator(without_other_keys(published("watch")))
    printed = [json.loads(line) for line in watching.lines]
    assert {one["kind"] for one in printed} == {"watching", "session", "total"}
    for one in printed:
        line_of_watch.validate(one)
    (row,) = run("sessions", "--json").document
    assert (row["session"], row["messages"]) == (SESSION, 2)


def test_without_a_folder_known_ones_are_watched(tmp_path: Path, start: Start) -> None:
    home = tmp_path / "home"
    place = home / ".claude" / "projects" / "one"
    place.mkdir(parents=True)
    (place / "a.jsonl").write_bytes(ClaudeCode().user("x").data())
    environment = {"HOME": str(home), "CODEX_HOME": "", "CLAUDE_CONFIG_DIR": ""}
    program = start("--store", tmp_path / "s.db", "watch", **environment)
    program.until(lambda: len(program.lines) > 2)
    assert program.stop() == 0
    assert program.lines[0] == f"found Claude Code: {home / '.claude' / 'projects'}"
    assert program.lines[2].startswith(SESSION)


def test_what_cannot_be_watched_is_refused_and_makes_no_store(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    run("watch").fails(str(tmp_path / ".codex" / "sessions"))
    file = tmp_path / "a.jsonl"
    file.write_bytes(ClaudeCode().user("x").data())
    for option in (("--complete",), ("--session", "x"), ("--format", "eventctx")):
        run("import", "--follow", file, *option).fails("--follow takes")
    run("watch", tmp_path / "nowhere").fails()
    assert not (tmp_path / "s.db").exists()
