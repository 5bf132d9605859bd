"""Everything that is measured for the page about scale, in one go: ``measured.json``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from eventctx.stores.memory import MemoryStore
from tests.benchmarks import report
from tests.benchmarks.scale import footprint, pooling, subjects
from tests.benchmarks.scale.footprint import Footprint
from tests.benchmarks.scale.points import Calibration, Point, calibrate, play
from tests.benchmarks.scale.pooling import Connections, Pooled
from tests.benchmarks.scale.requests import Counts, imported, play_all
from tests.benchmarks.scale.subjects import Step
from tests.benchmarks.servers import started

FILE: Final = Path(__file__).with_name("measured.json")

AGENTS: Final = (25, 50, 100, 150, 200, 300, 400, 600)
SHARES: Final = (0.2, 0.4, 0.6, 0.8, 0.95)
"""Of the appends that one process does when many wait at once: the loads that are tried."""

STREAMS: Final = 1_000


class Measured(msgspec.Struct):
    """Of one run on one machine."""

    at: str
    machine: dict[str, Any]
    played: list[Counts]
    imported: list[Counts]
    footprints: list[Footprint]
    calibrations: list[Calibration]
    appends: list[Point]
    agents: list[Point]
    subjects: list[Step]
    connections: Connections
    pooled: list[Pooled]


def measure(quick: bool) -> Measured:
    """Measure everything; ``quick`` does as little as shows that it works."""
    found = Measured(
        datetime.now(UTC).isoformat(timespec="seconds"),
        report.machine(),
        _say("the recorded sessions", asyncio.run(play_all(MemoryStore(), "played"))),
        asyncio.run(imported()),
        [], [], [], [], [],
        Connections(0, 0, 0),
        [],
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="eventctx-scale-") as name:
        folder = Path(name)
        found.footprints.append(asyncio.run(footprint.sqlite(folder)))
        _loads(found, "sqlite", str(folder / "load.db"), [], quick)
    with started.postgres() as server:
        found.footprints.append(asyncio.run(footprint.postgres(server)))
        found.connections = asyncio.run(pooling.connections(server))
        for program in pooling.programs():
            for mode in ("session", "transaction"):
                found.pooled.append(asyncio.run(pooling.pooled(server, program, mode)))
        pids = started.pids_of(server)
        _loads(found, "postgresql", server.url(server.new_database()), pids, quick)
    with started.quorum() as primary:
        url = primary.url(primary.new_database(), durability="replicated")
        _loads(found, "postgresql, quorum", url, started.pids_of(primary), quick)
    with started.jetstream() as cluster:
        found.footprints.append(asyncio.run(footprint.jetstream(cluster)))
        pids = started.pids_of(cluster)
        _loads(found, "jetstream, 3 replicas", cluster.url("LOAD"), pids, quick)
    counts = tuple(one // 20 for one in subjects.COUNTS) if quick else subjects.COUNTS
    found.subjects = _say("subjects", asyncio.run(subjects.measure(counts)))
    return found


def _loads(found: Measured, store: str, url: str, pids: Sequence[int], quick: bool) -> None:
    """What an append costs, then loads of appends, then agents until there are too many."""
    seconds = 1.5 if quick else 6.0
    # Two processes that write one file wait for each other: a file has one writer.
    processes = 1 if store == "sqlite" else 2
    calibration = _say(store, asyncio.run(calibrate(store, url, pids, seconds / 2)))
    found.calibrations.append(calibration)
    for share in SHARES[::3] if quick else SHARES:
        rate = calibration.rate * share
        point = play(store, url, "appends", STREAMS, rate, pids, processes, seconds)
        found.appends.append(_say(store, point))
    for number in AGENTS[:2] if quick else AGENTS:
        point = play(store, url, "agents", number, 1.0, pids, processes, seconds)
        found.agents.append(_say(store, point))
        if not point.holds:
            break


def _say(what: str, found: Any) -> Any:
    print(f"… {what}: {found}", file=sys.stderr, flush=True)
    return found


def write(found: Measured, path: Path = FILE) -> None:
    """Keep what was measured."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def read(path: Path = FILE) -> Measured:
    """What the last run measured."""
    return msgspec.json.decode(path.read_bytes(), type=Measured)
