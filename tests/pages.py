"""Reads a page of the documentation as a reader would: runs its code, compares what it prints.

How a page is read:

- Python blocks run in order and share one namespace; ``await`` may stand at the top level. A
  ``text`` block directly after one is what it prints.
- Console blocks run their ``$ eventctx …`` commands in the page's own folder. What is below a
  command is its output; ``$ echo $?`` and a number say how it exited, else that is with 0.
  ``$ python FILE …`` runs a file of the page as a process of its own.
- In shown output ``…`` stands for anything, on a line of its own for any lines. Digests, ids and
  times differ from run to run and are not compared.
- ``<!-- figures: REASON -->`` before a console block says that its numbers vary, durations and
  bars too.
- A page that imports an SDK of Anthropic or OpenAI asks a scripted API on this machine.
- ``<!-- file: NAME -->`` before a block saves it for what follows; ``<!-- not run: REASON -->``
  leaves a block out, ``<!-- with EXTRA -->`` or ``<!-- with EXTRA: REASON -->`` where that
  extra is not installed.

``python -P tests/pages.py PAGE EXTRA`` reads one page in the current folder, in the environment
that runs it, which has that extra and nothing else: ``tests/examples.py`` starts it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

SOMEBODY_ELSES = frozenset(("make", "pip", "git", "docker"))
"""Commands that a console block may show and that are not run here."""


class Block(NamedTuple):
    """A fenced block: its language, text, first line (from 1), and the comment before it."""

    language: str
    text: str
    line: int
    note: str
    adjacent: bool


_FENCE = re.compile(r"^(```+)(\w*)\s*$")
_NOTE = re.compile(r"^<!-- (.+) -->$")


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page. ``adjacent``: nothing but blank lines since the last one."""
    found: list[Block] = []
    fence = language = note = ""
    start, adjacent = 0, False
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        match = _FENCE.match(line)
        if fence:
            if line == fence:
                text = "".join(f"{one}\n" for one in lines[start : number - 1])
                found.append(Block(language, text, start + 1, note, adjacent))
                fence, note, adjacent = "", "", True
        elif match:
            fence, language, start = match[1], match[2], number
        elif said := _NOTE.match(line):
            note = said[1]
        elif line.strip():
            note, adjacent = "", False
    assert not fence, f"{page.name}: the block at line {start} does not end"
    return found


Command = Callable[[list[str]], tuple[int, str]]
"""Runs ``eventctx`` with these arguments: its exit code, and what it printed."""


class Reader:
    """Does what a reader of one page would do, in the current folder.

    ``eventctx`` runs the command line; ``has`` says whether an extra is installed.
    """

    def __init__(
        self, page: Path, runner: asyncio.Runner, eventctx: Command, has: Callable[[str], bool]
    ) -> None:
        self._page = page
        self._runner = runner
        self._eventctx = eventctx
        self._has = has
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed: str | None = None

    def follow(self) -> None:
        for block in blocks_of(self._page):
            kind, _, rest = block.note.partition(": ")
            if kind == "not run" or (kind.startswith("with ") and not self._has(kind[5:])):
                self._printed = None
                continue
            if kind == "file":
                Path(rest).parent.mkdir(parents=True, exist_ok=True)
                Path(rest).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                self._python(block)
                continue
            elif block.language in ("console", "bash"):
                self._console(block)
            elif block.language == "text" and block.adjacent and self._printed is not None:
                assert block.text.strip(), f"{self._page.name}:{block.line}: nothing is shown"
                compare(block.text, self._printed, f"{self._page.name}:{block.line}")
            self._printed = None

    def _python(self, block: Block) -> None:
        # The blank lines make tracebacks name the line of the page.
        source = "\n" * (block.line - 1) + block.text
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, str(self._page), "exec", flags=flags, dont_inherit=True)
        assert isinstance(code, CodeType)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            if code.co_flags & inspect.CO_COROUTINE:
                self._runner.run(eval(code, self._names))  # noqa: S307 - our own pages
            else:
                exec(code, self._names)  # noqa: S102 - our own pages
        self._printed = output.getvalue()

    def _console(self, block: Block) -> None:
        code: int | None = None
        for command, shown in _commands(block.text):
            where = f"{self._page.name}:{block.line}: $ {command}"
            words = shlex.split(command, comments=True)
            if command == "echo $?":
                assert code == int(shown), f"{where}: exited with {code}"
                code = None
                continue
            assert not code, f"{where}: the command before exited with {code}"
            if words[0] == "export":
                name, _, value = words[1].partition("=")
                os.environ[name] = value
            elif words[0] == "eventctx":
                code, printed = self._eventctx(words[1:])
                compare(shown, printed, where, block.note.startswith("figures: "))
            elif words[0] == "python":
                done = _process([sys.executable, *words[1:]])
                compare(shown, done.stdout + done.stderr, where)
                code = done.returncode
            else:
                assert words[0] in SOMEBODY_ELSES, f"{where}: nobody knows how to run this"
        assert not code, f"{self._page.name}:{block.line}: the last command exited with {code}"


def _process(command: list[object], stderr: int = subprocess.PIPE) -> Any:
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": stderr}
    return subprocess.run([str(word) for word in command], text=True, timeout=60, **streams)


def _commands(text: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"expected a command first, found {parts[0]!r}"
    split = [part.replace("\\\n", " ").partition("\n") for part in parts[1:]]
    return [(command.strip(), shown) for command, _, shown in split]


_VARYING = (
    (re.compile(r"\b[0-9a-f]{8,64}\b"), "<hex>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?"), "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "<day>"),
)
_FIGURES = (
    (re.compile(r" *\d[\d,.]* (ms|s|min \d+ s)(?= |$)"), " <duration>"),
    (re.compile(r" *\d[\d,]*"), "<n>"),
    (re.compile("█*░*(?= )"), ""),
)


def compare(shown: str, printed: str, where: str, figures: bool = False) -> None:
    """Fail unless ``printed`` is what a page shows. Nothing shown: nothing is compared.

    ``figures``: neither are numbers, durations and bars.
    """
    if not shown.strip():
        return
    varying = _VARYING + _FIGURES if figures else _VARYING
    lines = [_steady(line, varying) for line in shown.strip("\n").splitlines()]
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"[ ]*\n"
        for line in lines
    )
    actual = "".join(f"{_steady(line, varying)}\n" for line in printed.strip("\n").splitlines())
    assert re.fullmatch(pattern, actual), f"{where}: printed was\n{printed}"


def _steady(line: str, varying: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    line = line.rstrip()
    for pattern, name in varying:
        line = pattern.sub(name, line)
    return line


def _as_a_program(arguments: list[str]) -> tuple[int, str]:
    program = Path(sys.executable).with_name("eventctx")
    done = _process([program, *arguments], subprocess.STDOUT)
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))  # as Python does with the folder of a reader's program
    with asyncio.Runner() as one:
        Reader(Path(sys.argv[1]), one, _as_a_program, sys.argv[2].__eq__).follow()
