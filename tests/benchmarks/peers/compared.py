"""Neighbours on the same messages, in the same run: append, load, and preparing a request.

Each is built and measured in a process of its own. The processes take turns: one step of the
first, of the second and so on, and again, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.benchmarks.peers import child
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import messages

FIGURE = "peers"
LENGTHS: Final = (1_000, 10_000)
KEYS: Final = ("append", "load", "prepare")

ROUNDS: Final = 5
TAKEN: Final = {"append": 20, "load": 1, "prepare": 2}
"""Steps of a neighbour's turn."""

COUNTED: Final = 40
"""Appends of which the syncs are counted, behind as many messages."""

ROOT: Final = Path(__file__).parents[3]


class Peer(NamedTuple):
    """A neighbour: its name, its module here, and what else the module is told."""

    name: str
    module: str
    kind: str = ""

    @property
    def variable(self) -> str:
        """The variable that names an interpreter which has it, where this one has not."""
        return f"EVENTCTX_{self.module.upper()}_PYTHON"

    @property
    def interpreter(self) -> str:
        return os.environ.get(self.variable, sys.executable)


OURS: Final = Peer("eventctx", "ours")
PEERS: Final = (
    Peer("openai-agents SQLiteSession", "openai_agents"),
    Peer("langgraph-checkpoint-sqlite", "langgraph"),
    Peer("OpenHands ConversationState", "openhands"),
    Peer("google-adk SqliteSessionService", "google_adk", "sqlite"),
    Peer("google-adk DatabaseSessionService", "google_adk", "database"),
    Peer("pydantic-ai-harness SqliteConversationStore", "pydantic_ai"),
)


class Process:
    """A neighbour's process, and what its steps took.

    ``missing`` says why there are no steps, or no more of them; ``hello`` what the neighbour is.
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors
        self.hello: dict[str, Any] = {}
        self.missing = ""
        self.samples = Samples()

    async def begun(self) -> None:
        """Wait until its session is built."""
        self.hello = await self._answer()

    async def take(self, step: str, count: int = 1) -> int:
        """So many steps, or fewer if they take long; how many were taken."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{step} {count}\n".encode())
        found = await self._answer()
        for wall, processor in zip(found.get("wall", ()), found.get("processor", ()), strict=True):
            self.samples.add(step, wall, processor)
        return len(found.get("wall", ()))

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"missing": self._last_words()}
        self.missing = found.get("missing", "")
        return found

    def _last_words(self) -> str:
        return self._errors.read_text().strip().rpartition("\n")[2] or "its process ended"


async def measure(place: Place) -> list[Row]:
    syncs = {peer: await _syncs(place, peer) for peer in (OURS, *PEERS)}
    rows: list[Row] = []
    for length in LENGTHS[: place.count(2, 1)]:
        rows += await _at(place, length, syncs)
    return rows


async def _at(place: Place, length: int, syncs: dict[Peer, str]) -> list[Row]:
    async with AsyncExitStack() as stack:
        processes = {
            peer: await stack.enter_async_context(started(place, peer, length))
            for peer in (OURS, *PEERS)
        }
        own = processes[OURS]
        order = [*processes.values()]
        for _ in range(place.count(ROUNDS, 3)):
            # Another begins each round: who comes after much writing finds a busy disk.
            order.append(order.pop(0))
            for key in KEYS:
                for process in order:
                    if not process.missing:
                        await process.take(key, TAKEN[key])
    rows: list[Row] = []
    for peer, process in processes.items():
        if process.missing:
            note = f"{process.missing}; {peer.variable} may name an interpreter that has it"
            rows.append(missing(FIGURE, f"{peer.name} at {length:,}", note))
        else:
            rows += _rows(peer, process, None if peer == OURS else own, length, syncs[peer])
    return rows


def _rows(
    peer: Peer, process: Process, own: Process | None, length: int, syncs: str
) -> Sequence[Row]:
    samples = process.samples
    return [
        Row(
            figure=FIGURE,
            name=f"{peer.name}: {key} at {length:,}",
            value=samples.milli(key),
            unit="ms",
            against="eventctx" if own else "",
            floor=own.samples.milli(key) if own else None,
            cpu=samples.cpu(key),
            floor_cpu=own.samples.cpu(key) if own else None,
            note=_note(process.hello, key, syncs),
        )
        for key in KEYS
    ]


def _note(hello: dict[str, Any], key: str, syncs: str) -> str:
    what: str = hello["what"][key]
    return f"{what}; {syncs}; {hello['version']}" if key == "append" else what


@asynccontextmanager
async def started(
    place: Place, peer: Peer, length: int, before: Sequence[str] = ()
) -> AsyncIterator[Process]:
    """The neighbour's process, with a session of so many messages built."""
    folder = place.path(peer.module)
    folder.mkdir()
    more = max(COUNTED, ROUNDS * TAKEN["append"])
    (folder / "messages.json").write_text(json.dumps(messages(length + more)))
    errors = folder / "errors"
    with errors.open("w") as said:
        process = await asyncio.create_subprocess_exec(
            *before,
            peer.interpreter,
            "-m",
            child.__name__,
            peer.module,
            peer.kind,
            str(folder),
            str(length),
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


async def _syncs(place: Place, peer: Peer) -> str:
    """How often an append makes the disk write, in words."""
    if (strace := shutil.which("strace")) is None:
        return "syncs not counted: no strace"
    traced = place.path(f"{peer.module}.strace")
    watched = "trace=fsync,fdatasync,sync_file_range,chdir"
    before = (strace, "-f", "-qq", "-e", "signal=none", "-e", watched, "-o", str(traced))
    async with started(place, peer, COUNTED, before) as process:
        if process.missing:
            return ""
        await process.take(child.MARK)
        appends = await process.take("append", COUNTED)
        await process.take(child.MARK)
    counted, marks = 0, 0
    for line in traced.read_text().splitlines():
        marks += 'chdir(".")' in line
        counted += marks == 1 and "sync" in line and "resumed" not in line
    return f"{counted / appends:.3g} syncs"
