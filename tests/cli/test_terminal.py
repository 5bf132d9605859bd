"""The interactive stepper and the progress bar, on a real pseudo-terminal."""

from __future__ import annotations

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import imported, say

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """A child of this process on a terminal of 80 columns; it is ended with the block.

    A ``dumb`` terminal shows no progress bar, however busy the machine is.
    """

    def __init__(self, *arguments: object, term: str = "xterm-256color") -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": term}
        environment.pop("COLUMNS", None)
        command = [sys.executable, "-m", "eventctx.cli", *map(str, arguments)]
        ends: Any = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.child = subprocess.Popen(command, env=environment, start_new_session=True, **ends)
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
        for more in self._read(seconds):
            seen += more
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))
            if wanted in text:
                return text
        raise AssertionError(f"{wanted!r} was not shown, but {seen!r}")

    def all(self, seconds: float = 60) -> str:
        """All that is shown until the program ends, just as the terminal gets it."""
        return b"".join(self._read(seconds)).decode().replace("\r\n", "\n")

    def _read(self, seconds: float) -> Iterator[bytes]:
        """What is shown, piece by piece, until the program ends or so many seconds are over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    yield os.read(self.master, 65_536)
                except OSError:
                    return
            elif self.child.poll() is not None:
                return

    def type(self, keys: str) -> None:
        """Type what the program waits for: a key, or with ``\\r`` at its end a line."""
        # What comes before the program waits for a key is thrown away by the terminal. It waits
        # when it has turned off the terminal's reading by lines.
        end = time.monotonic() + 60
        while bool(termios.tcgetattr(self.master)[3] & termios.ICANON) != keys.endswith("\r"):
            assert time.monotonic() < end, "the program does not wait for a key"
            time.sleep(0.01)
        os.write(self.master, keys.encode())

    def ends(self) -> int:
        """The exit code; what the program still shows is thrown away."""
        self.all()
        return self.child.wait(60)


@pytest.fixture
def stepper(store):
    with Terminal("replay", "work", "--store", store) as terminal:
        yield terminal


def test_the_stepper_steps_forth_and_back_and_to_positions_and_compactions(stepper):
    assert "session:start" in stepper.until("q quit")
    for key, shown in (
        *(("n", "Be brief."), ("t", "turn 1"), ("\x1b[C", "Task 0: look around.")),
        *(("t", "turn 2"), ("p", "prompt:complete"), ("G", "turn 3")),
        *(("g", "position:"), ("3\r", "@3")),
    ):
        stepper.type(key)
        stepper.until(shown)
    stepper.type("c")
    shown = stepper.until("context:post_compact")
    assert "of 3,000" in shown and "1 compaction" in shown and "█" in shown
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
    words = {"role": "user", "content": f'é{HIDDEN}\t\n\x1b[31m"\\ü😀'}
    return imported(run, tmp_path, [words], "--complete")


@pytest.mark.parametrize("command", ["transcript talk --json", "export talk"])
def test_json_on_a_terminal_has_escapes_and_says_the_same(hidden, run, command) -> None:
    with Terminal(*command.split(), "--store", hidden, term="dumb") as terminal:
        shown = terminal.all()
    piped = run(*command.split(), "--store", hidden).out
    assert all(one in piped for one in HIDDEN)
    assert [f"{ord(one):x}" for one in shown if one in HIDDEN] == []
    assert "\\u009b" in shown and "\\udb40\\udc41" in shown
    assert "é" in shown and "😀" in shown
    # A document over several lines, or one a line.
    texts = ([text] if text.startswith("[") else text.split("\n") for text in (shown, piped))
    ours, theirs = ([json.loads(one) for one in lines if one] for lines in texts)
    assert ours == theirs


def test_a_screen_shows_the_code_of_what_is_hidden(hidden) -> None:
    with Terminal("transcript", "talk", "--store", hidden) as terminal:
        shown = terminal.all()
    assert [f"{ord(one):x}" for one in shown if one in HIDDEN] == []
    for code in (r"\x9b", r"\u200b", r"\ufeff", r"\U000e0041"):
        assert code in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", shown)


def test_long_results_are_shown_in_part_unless_all_is_asked_for(run, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    say(tmp_path / "s.db", "tall", "\n".join(f"line {number}" for number in range(100)))
    part = run("transcript", "tall").ok("line 11", "88 more lines")
    assert "line 12" not in part
    run("transcript", "tall", "--full").ok("line 99")


def test_a_long_line_of_a_tree_goes_on_below_its_branch(store) -> None:
    with Terminal("trace", "work", "--turn", 3, "--store", store) as terminal:
        shown = terminal.until("dropped")
        assert terminal.ends() == 0
    lines = shown.replace("\r", "").splitlines()
    at = next(place for place, line in enumerate(lines) if "↓ compact" in line)
    assert len(lines[at]) <= 80
    assert re.match(r"│ +\S", lines[at + 1])
