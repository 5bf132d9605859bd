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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from inspect import isawaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

Message = dict[str, Any]

MOST_SECONDS = 1.0
"""No further step is begun after this long in one turn: some take a second each."""


class Neighbour(NamedTuple):
    """A session of so many messages on the disk, and the three things that are measured.

    A module of this folder has ``opened(folder, messages)``, which makes one in an empty folder,
    its ``PACKAGE``, and ``WHAT`` each step calls. What is timed gets what was made ready for it: a
    message as ``item`` makes it, or a ``fresh`` object that has not seen the session. The process
    ends without closing that one. An append is durable when it ends.
    """

    item: Callable[[Message], Any]
    append: Callable[[Any], Any]
    fresh: Callable[[], Any]
    load: Callable[[Any], Any]
    prepare: Callable[[], Any]


async def _ended(made: Any) -> Any:
    """What a call of a neighbour gave, with async or without."""
    return await made if isawaitable(made) else made


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: 10,000 synced appends take minutes on some disks."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


async def serve(module: str, folder: Path, length: int) -> None:
    """Build the session, say so, and take steps until the input ends."""
    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=out, flush=True)

    try:
        peer: Any = import_module(f"tests.benchmarks.neighbours.{module}")
    except ImportError as error:
        answer({"missing": str(error)})
        return
    messages: list[Message] = json.loads((folder / "messages.json").read_text())
    neighbour: Neighbour = await peer.opened(folder, messages[:length])
    coming = iter(messages[length:])
    answer({"version": version(peer.PACKAGE), "what": peer.WHAT})
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, count = line.split()
        took: dict[str, list[float]] = {"wall": [], "processor": []}
        until = time.perf_counter() + MOST_SECONDS
        while len(took["wall"]) < int(count) and time.perf_counter() < until:
            given: tuple[Any, ...] = ()
            if name == "append":
                given = (neighbour.item(next(coming)),)
            elif name == "load":
                given = (await _ended(neighbour.fresh()),)
            spent, began = time.process_time(), time.perf_counter()
            await _ended(getattr(neighbour, name)(*given))
            took["wall"].append(time.perf_counter() - began)
            took["processor"].append(time.process_time() - spent)
        answer(took)


if __name__ == "__main__":
    # Neighbours tell of things that have nothing to do with what is measured.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
