"""One neighbour in a process of its own: it is told on its input what to do next, and how often.

It imports the neighbour and nothing of this library, so any interpreter that has the neighbour
runs it, whatever else that neighbour asks for. A line of input is a step and how often to take it;
a line of output has the seconds that each took.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

Message = dict[str, Any]
Step = AbstractAsyncContextManager[Callable[[], Awaitable[Any]]]
"""What is made ready on entering, and done and timed when what it gives is called."""

MOST_SECONDS = 1.0
"""No further step is begun after this long in one turn: some take a second each."""

MARK = "mark"
"""Changes to the working folder, which nothing else does: whoever traces the process sees it."""


class Neighbour(Protocol):
    """A session of so many messages on the disk, and the three things that are measured."""

    def append(self, message: Message) -> Step:
        """One more message, durable when the step ends."""

    def load(self) -> Step:
        """The whole session, by an object that has not seen it."""

    def prepare(self) -> Step:
        """What is done with the session before each model call."""


class Peer(Protocol):
    """A module of this folder."""

    PACKAGE: str
    WHAT: dict[str, str]

    async def opened(self, folder: Path, messages: list[Message], **options: str) -> Neighbour:
        """A session of these messages below ``folder``, which is empty."""


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: 10,000 synced appends take minutes on some disks."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


async def serve(module: str, option: str, folder: Path, length: int) -> None:
    """Build the session, say so, and take steps until the input ends."""
    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=out, flush=True)

    try:
        peer: Any = import_module(f"tests.benchmarks.peers.{module}")
    except ImportError as error:
        answer({"missing": str(error)})
        return
    with (folder / "messages.json").open() as file:
        messages: list[Message] = json.load(file)
    options = {"kind": option} if option else {}
    neighbour: Neighbour = await peer.opened(folder, messages[:length], **options)
    coming = iter(messages[length:])
    answer({"version": version(peer.PACKAGE), "what": peer.WHAT})
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, count = line.split()
        if name == MARK:
            os.chdir(".")
            answer({})
            continue
        wall: list[float] = []
        processor: list[float] = []
        until = time.perf_counter() + MOST_SECONDS
        while len(wall) < int(count) and time.perf_counter() < until:
            step = neighbour.append(next(coming)) if name == "append" else _step(neighbour, name)
            async with step as work:
                spent, began = time.process_time(), time.perf_counter()
                await work()
                wall.append(time.perf_counter() - began)
                processor.append(time.process_time() - spent)
        answer({"wall": wall, "processor": processor})


def _step(neighbour: Neighbour, name: str) -> Step:
    return neighbour.load() if name == "load" else neighbour.prepare()


if __name__ == "__main__":
    # Neighbours tell of things that have nothing to do with what is measured.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    asyncio.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
