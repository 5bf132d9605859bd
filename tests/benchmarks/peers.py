"""Neighbours on the same messages, in the same run: append, load, and preparing a request.

Each is built and measured in a process of its own. The processes take turns: one step of the
first, of the second and so on, and again, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.benchmarks import neighbours
from tests.benchmarks.rows import Row, missing, target, unmeasured
from tests.benchmarks.timing import Place, Samples
from tests.benchmarks.workload import messages

FIGURE: Final = "peers"
LENGTH: Final = 10_000
KEYS: Final = ("append", "load", "prepare")

ROUNDS: Final = 5
TAKEN: Final = {"append": 20, "load": 1, "prepare": 2}
"""Steps of a neighbour's turn."""

ROOT: Final = Path(__file__).parents[2]


class Peer(NamedTuple):
    """A neighbour: its name, and its function in ``neighbours``."""

    name: str
    module: str

    @property
    def variable(self) -> str:
        """The variable that names an interpreter which has it, where this one has not."""
        return f"EVENTCTX_{self.module.upper()}_PYTHON"


OURS: Final = Peer("eventctx", "ours")
OPENAI: Final = Peer("openai-agents SQLiteSession", "openai_agents")
LANGGRAPH: Final = Peer("langgraph-checkpoint-sqlite", "langgraph")
PEERS: Final = (OPENAI, LANGGRAPH, Peer("google-adk SqliteSessionService", "google_adk"))


class Process:
    """A neighbour's process, and what its steps took.

    ``missing`` says why there are no steps, or no more of them; ``hello`` what the neighbour is.
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output, self._errors = process.stdin, process.stdout, errors
        self.hello: dict[str, Any] = {}
        self.missing = ""
        self.samples = Samples()

    async def begun(self) -> None:
        self.hello = await self._answer()

    async def take(self, step: str, count: int = 1) -> int:
        """So many steps, or fewer if they take long; how many were taken."""
        self._input.write(f"{step} {count}\n".encode())
        found = await self._answer()
        for wall, processor in zip(found.get("wall", ()), found.get("processor", ()), strict=True):
            self.samples.add(step, wall, processor)
        return len(found.get("wall", ()))

    async def _answer(self) -> dict[str, Any]:
        line = await self._output.readline()
        words = "" if line else self._errors.read_text().strip().rpartition("\n")[2]
        missing = {"missing": words or "its process ended"}
        found: dict[str, Any] = json.loads(line) if line else missing
        self.missing = found.get("missing", "")
        return found


async def measure(place: Place) -> list[Row]:
    length = place.count(LENGTH)
    async with AsyncExitStack() as stack:
        processes = {
            peer: await stack.enter_async_context(started(place, peer, length))
            for peer in (OURS, *PEERS)
        }
        order = [*processes.values()]
        for _ in range(place.count(ROUNDS, 3)):
            # Another begins each round: who comes after much writing finds a busy disk.
            order.append(order.pop(0))
            for key in KEYS:
                for process in order:
                    if not process.missing:
                        await process.take(key, TAKEN[key])
    own = processes[OURS]
    rows = []
    for key in ("load", "append"):
        other = processes[OPENAI]
        if other.missing:
            rows.append(unmeasured(key, other.missing))
        else:
            ours, theirs = (1 / one.samples.median(key) for one in (own, other))
            rows.append(target(key, ours, theirs, f"messages: {length:,}"))
    for peer, process in processes.items():
        if process.missing:
            note = f"{process.missing}; {peer.variable} may name an interpreter that has it"
            rows.append(missing(FIGURE, f"{peer.name} at {length:,}", note))
        else:
            rows += _rows(peer, process, None if peer == OURS else own.samples, length)
    return rows


def _rows(peer: Peer, process: Process, own: Samples | None, length: int) -> Sequence[Row]:
    samples, version = process.samples, process.hello["version"]
    return [
        Row(
            figure=FIGURE,
            name=f"{peer.name}: {key} at {length:,}",
            value=samples.milli(key),
            unit="ms",
            against="eventctx" if own else "",
            floor=own.milli(key) if own else None,
            cpu=samples.cpu(key),
            floor_cpu=own.cpu(key) if own else None,
            note=process.hello["what"][key] + (f"; {version}" if key == "append" else ""),
        )
        for key in KEYS
    ]


@asynccontextmanager
async def started(place: Place, peer: Peer, length: int) -> AsyncIterator[Process]:
    """The neighbour's process, with a session of so many messages built."""
    folder = place.path(peer.module)
    folder.mkdir()
    made = messages(length + ROUNDS * TAKEN["append"])
    (folder / "messages.json").write_text(json.dumps(made))
    errors = folder / "errors"
    interpreter = os.environ.get(peer.variable, sys.executable)
    with errors.open("w") as said:
        process = await asyncio.create_subprocess_exec(
            *(interpreter, "-m", neighbours.__name__, peer.module, str(folder), str(length)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
        )
    try:
        neighbour = Process(process, errors)
        await neighbour.begun()
        yield neighbour
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
