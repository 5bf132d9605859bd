"""An agent in another process, which a test tells when to append."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.browser.inspecting import PATIENCE
from tests.children import started

_PROGRAM: Final = Path(__file__).resolve().parents[1] / "programs" / "appending.py"


class Appended(NamedTuple):
    """When an append was acknowledged, in ms since 1970, and how many ms it took."""

    at: float
    took: float


class Writer:
    """A running program; each ``says`` is a round of its agent."""

    def __init__(self, process: subprocess.Popen[Any]) -> None:
        self._process = process

    async def says(self, text: str) -> Appended:
        """Append a person's message, a request, and an answer."""
        return await asyncio.wait_for(asyncio.to_thread(self._round, text), PATIENCE)

    def _round(self, text: str) -> Appended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        at, took = self._process.stdout.readline().split()
        return Appended(float(at), float(took))


@asynccontextmanager
async def writing(store: Path, session: str) -> AsyncIterator[Writer]:
    """A writer to a session until the end of the block."""
    command = [sys.executable, _PROGRAM, store, session]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Writer(process)
