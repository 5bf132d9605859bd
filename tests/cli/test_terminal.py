"""The interactive stepper and the progress bar, on a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """A child of this process on a terminal of 80 columns; it is ended with the block.

    A ``dumb`` terminal shows no progress bar, however busy the machine is.
    """

    def __init__(self, *arguments: object, term: str = "xterm-256color") -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        modules = str(ROOT)
        environment = {**os.environ, "PYTHONPATH": modules, "TERM": term}
        environment.pop("COLUMNS", None)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "eventctx.cli", *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.master)

    def until(self, wanted: str, seconds: float = 60) -> str:
        """Read until ``wanted`` was shown; returns what was shown, without colours."""
        seen = b""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    seen += os.read(self.master, 65_536)
                except OSError:
                    break
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))
            if wanted in text:
                return text
        raise AssertionError(f"{wanted!r} was not shown, but {seen!r}")

    def all(self, seconds: float = 60) -> str:
        """All that is shown until the program ends, just as the terminal gets it."""
        seen = b""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    seen += os.read(self.master, 65_536)
                except OSError:
                    break
            elif self.child.poll() is not None:
                break
        return seen.decode().replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        """Type what the program waits for: a key, or with ``\\r`` at its end a line."""
        # What comes before the program waits for a key is thrown away by the terminal. It waits
        # when it has turned off the terminal's reading by lines.
        end = time.monotonic() + 60
        while self._reads_lines() != keys.endswith("\r"):
            assert time.monotonic() < end, "the program does not wait for a key"
            time.sleep(0.01)
        os.write(self.master, keys.encode())

    def _reads_lines(self) -> bool:
        local_modes = termios.tcgetattr(self.master)[3]
        return bool(local_modes & termios.ICANON)

    def ends(self) -> int:
        """The exit code; what the program still shows is thrown away."""
        end = time.monotonic() + 60
        while self.child.poll() is None:
            assert time.monotonic() < end, "it does not end"
            if select.select([self.master], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    os.read(self.master, 65_536)
        return self.child.returncode


@pytest.fixture
def stepper(store):
    with Terminal("replay", "work", "--store", store) as terminal:
        yield terminal


def test_the_stepper_steps_forth_and_back(stepper):
    assert "session:start" in stepper.until("q quit")
    stepper.type("n")
    assert "Be brief." in stepper.until("Be brief.")
    stepper.type("t")
    stepper.until("turn 1")
    stepper.type("\x1b[C")
    assert "Task 0: look around." in stepper.until("Task 0: look around.")
    stepper.type("t")
    stepper.until("turn 2")
    stepper.type("p")
    stepper.until("prompt:complete")
    stepper.type("G")
    stepper.until("turn 3")
    stepper.type("q")
    assert stepper.ends() == 0


def test_the_stepper_finds_compactions_and_shows_how_full_the_budget_is(stepper):
    stepper.until("q quit")
    stepper.type("c")
    shown = stepper.until("context:post_compact")
    assert "of 3,000" in shown
    assert "1 compaction" in shown
    assert "█" in shown
    stepper.type("q")
    assert stepper.ends() == 0


def test_the_stepper_goes_to_a_position(stepper):
    stepper.until("q quit")
    stepper.type("g")
    stepper.until("position:")
    stepper.type("3\r")
    stepper.until("@3")
    stepper.type("q")
    assert stepper.ends() == 0


def test_ctrl_c_leaves_the_stepper(stepper):
    stepper.until("q quit")
    stepper.type("\x03")
    assert stepper.ends() == 130


# C1, DEL, marks that reorder, marks without a width, tags; one of each end of a range.
HIDDEN = (
    "\x7f\x80\x9b\x9f\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u2060"
    "\u2066\u2069\ufeff\U000e0000\U000e0041\U000e007f"
)


@pytest.fixture
def hidden(run, tmp_path) -> Path:
    """A store with a session whose message holds every kind of character to escape."""
    file = tmp_path / "hidden.json"
    file.write_text(json.dumps([{"role": "user", "content": f'é{HIDDEN}\t\n\x1b[31m"\\ü😀'}]))
    run("import", file, "--complete", "--store", tmp_path / "hidden.db")
    return tmp_path / "hidden.db"


@pytest.mark.parametrize("command", ["transcript hidden --json", "export hidden"])
def test_json_on_a_terminal_has_escapes_and_says_the_same(hidden, run, command) -> None:
    with Terminal(*command.split(), "--store", hidden, term="dumb") as terminal:
        shown = terminal.all()
    piped = run(*command.split(), "--store", hidden).out
    assert all(one in piped for one in HIDDEN)
    assert [f"{ord(one):x}" for one in shown if one in HIDDEN] == []
    assert "\\u009b" in shown and "\\udb40\\udc41" in shown
    assert "é" in shown and "😀" in shown
    assert _documents(shown) == _documents(piped)


def _documents(text: str) -> list[Any]:
    if text.startswith("["):
        return [json.loads(text)]
    return [json.loads(line) for line in text.split("\n") if line]


def test_a_screen_shows_the_code_of_what_is_hidden(hidden) -> None:
    with Terminal("transcript", "hidden", "--store", hidden) as terminal:
        shown = terminal.all()
    assert [f"{ord(one):x}" for one in shown if one in HIDDEN] == []
    for code in (r"\x9b", r"\u200b", r"\ufeff", r"\U000e0041"):
        assert code in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", shown)


def test_long_results_are_shown_in_part_unless_all_is_asked_for(run, store, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    run("import", _tall(store.parent), "--complete", "--store", store)
    part = run("transcript", "tall", "--store", store).out
    assert "line 11" in part and "line 12" not in part
    assert "88 more lines" in part
    assert "line 99" in run("transcript", "tall", "--full", "--store", store).out


def _tall(folder: Path) -> Path:
    path = folder / "tall.json"
    text = "\\n".join(f"line {number}" for number in range(100))
    path.write_text(f'[{{"role": "user", "content": "{text}"}}]')
    return path


def test_a_long_line_of_a_tree_goes_on_below_its_branch(store) -> None:
    with Terminal("trace", "work", "--turn", 3, "--store", store) as terminal:
        shown = terminal.until("dropped")
        assert terminal.ends() == 0
    lines = shown.replace("\r", "").splitlines()
    at = next(place for place, line in enumerate(lines) if "↓ compact" in line)
    assert len(lines[at]) <= 80
    assert re.match(r"│ +\S", lines[at + 1])
