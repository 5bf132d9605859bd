"""`eventctx inspect` as a process of its own, and the store it shows."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from click.testing import CliRunner

from eventctx.cli.main import cli
from tests.children import started

PATIENCE: Final = 60.0
"""Seconds that a test waits for a server that is there within one."""

_URL: Final = re.compile(r"https?://\S+")


class Inspector(NamedTuple):
    """A running server: ``invitation`` is the URL with its token, good for one use."""

    invitation: str
    process: subprocess.Popen[Any]

    @property
    def origin(self) -> str:
        parts = urlsplit(self.invitation)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def port(self) -> int:
        port = urlsplit(self.invitation).port
        assert port is not None
        return port


@asynccontextmanager
async def inspecting(store: Path, *options: object) -> AsyncIterator[Inspector]:
    """A server over ``store`` until the end of the block; it has told its URL when that begins."""
    command = [*program("inspect"), "--store", store, "--no-open", *options]
    log = store.with_name(f"{store.name}-inspect.log")
    # To a file, not a pipe: who writes to a pipe that nobody empties stands still.
    with log.open("wb") as errors:
        process = started(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        with process as server:
            url = await asyncio.wait_for(asyncio.to_thread(_told, server), PATIENCE)
            if url is None:
                raise AssertionError(await asyncio.to_thread(log.read_text))
            yield Inspector(url, server)


def _told(server: subprocess.Popen[bytes]) -> str | None:
    """The first URL that the program prints, or None when it ends without one."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := _URL.search(line.decode()):
            return found[0]
    return None


def program(*words: object) -> list[object]:
    return [sys.executable, "-m", "eventctx.cli", *words]


async def output_of(*words: object) -> str:
    """What the program prints when it is run to its end, which must be a good one."""
    command = [str(word) for word in program(*words)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


async def answer_of(*words: object) -> str:
    """What a command prints that runs in this process, which is sooner: as ``output_of``."""
    arguments = [str(word) for word in words]
    done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert done.exit_code == 0, done.stderr[-2_000:]
    return done.stdout


def path_of(session: str, screen: str = "", **query: object) -> str:
    """The page of a session, as the address bar has it."""
    path = f"/s/{quote(session, safe='')}" + (f"/{screen}" if screen else "")
    given = "&".join(f"{key}={quote(str(value))}" for key, value in query.items())
    return f"{path}?{given}" if given else path


SCREENS: Final[Sequence[str]] = ("", "lost", "compare", "search", "integrity")
"""The screens of a session, as they stand in its address."""
