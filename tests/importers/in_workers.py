"""What worker processes do in tests: they import it, so it is in a module of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eventctx.errors import WrongExpectedVersion
from eventctx.importers.load import ImportSummary, import_file
from eventctx.log.store import EventStore


# What is imported here, every worker of a test loads.
def now() -> int:
    return 1_900_000_000_000_000_000


Imported = Sequence[ImportSummary]


async def import_alike(store: EventStore, path: Path, **told: Any) -> Imported:
    """An import whose records are the same ones, byte for byte, whenever it is made."""
    return await import_file(store, path, clock=now, salt=bytes, **told)


async def die_in_the_middle(store: EventStore, path: Path, **told: Any) -> Imported:
    """In a worker, what reads a file called ``dies`` is killed when it has read half of it."""

    def kill(done: int, size: int) -> None:
        if path.stem == "dies" and done > size / 2:
            os.kill(os.getpid(), signal.SIGKILL)

    return await import_alike(store, path, **{**told, "progress": kill})


async def run_out_of_memory(store: EventStore, path: Path, **told: Any) -> Imported:
    """No memory is left for a file called ``dies``."""
    if path.stem == "dies":
        raise MemoryError
    return await import_alike(store, path, **told)


async def tell_the_process(store: EventStore, path: Path, **told: Any) -> Imported:
    """Writes the process's id next to the file."""
    path.with_suffix(".pid").write_text(str(os.getpid()))
    return await import_alike(store, path, **told)


async def fail(*_: Any, **__: Any) -> Imported:
    """A programming error."""
    raise KeyError("a bug")


async def be_overtaken(store: EventStore, path: Path, **told: Any) -> Imported:
    """The first that reads a file called ``late`` finds that another appended to its session."""
    if path.stem == "late" and not (read := path.with_suffix(".read")).exists():
        read.touch()
        raise WrongExpectedVersion("late", 3, 4)
    return await import_alike(store, path, **told)
