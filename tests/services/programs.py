"""A real coding agent against a server on this machine that answers from a script: opt-in.

It gets a home folder of its own and reaches no other address.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from tests.scripted_http import Answer, ScriptedHTTP, serving


def program_of(variable: str, size: str) -> Path:
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"opt-in ({size}): ${variable} is the path of the program")
    return Path(named)


def ran(program: Path, home: Path, folder: Path, *arguments: str, **environment: str) -> str:
    """Run a program in a folder, with a home of its own; what it printed on both outputs."""
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


class Program(NamedTuple):
    """The program in a folder of its own: ``home`` and ``project`` are below it."""

    binary: Path
    folder: Path
    api: ScriptedHTTP

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def home(self) -> Path:
        return self.folder / "home"


P = TypeVar("P", bound=Program)


@contextmanager
def installed(kind: type[P], binary: Path, folder: Path, answer: Answer) -> Iterator[P]:
    for name in ("home", "project"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    with serving(answer) as api:
        yield kind(binary, folder, api)


def set_up(host: str, home: Path, *options: str) -> None:
    """Our server and hooks in the settings of a program, as ``eventctx setup`` writes them."""
    line = ["-m", "eventctx.cli", "setup", host, "--yes", *options]
    ran(Path(sys.executable), home, Path.cwd(), *line)
