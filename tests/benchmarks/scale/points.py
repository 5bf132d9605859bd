"""Loads from several processes at once on a store, and what they and its servers did meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import msgspec

import eventctx
from eventctx.log.store import NO_STREAM
from tests.benchmarks.scale.load import Played, drafts_of_append
from tests.benchmarks.scale.queueing import Costs
from tests.benchmarks.servers.started import processor_seconds
from tests.benchmarks.timing import now, quantile

PROCESSES: Final = 2
SECONDS: Final = 6.0

MANY: Final = 200
"""Appends under way at once, in the measurement of what a large batch costs."""


class Point(msgspec.Struct):
    """A load and what became of it: rates a second, milliseconds, and milliseconds of processor."""

    store: str
    kind: str
    processes: int
    offered: float
    done: float
    p50: float
    p95: float
    p99: float
    client: float
    server: float
    session_kilobytes: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the store keeps up, and 99 of 100 come back within a quarter of a second."""
        return self.done >= 0.95 * self.offered and self.p99 <= 250.0


def play(
    store: str,
    url: str,
    kind: str,
    number: int,
    rate: float,
    pids: Sequence[int],
    processes: int = PROCESSES,
    seconds: float = SECONDS,
) -> Point:
    """A load of ``number`` sessions, with ``rate`` of each (agents) or of all (appends)."""
    each = number // processes
    own = rate if kind == "agents" else rate / processes
    command = [sys.executable, "-m", "tests.benchmarks.scale.load", url, kind]
    command += [str(each), str(own), str(seconds)]
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            )
            for _ in range(processes)
        ]
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("a process of the load ended before it began")
        spent = processor_seconds(pids)
        for process in running:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        played = [_read(process) for process in running]
        spent = processor_seconds(pids) - spent
    return _point(store, kind, processes, seconds, played, spent, each * processes)


def _read(process: subprocess.Popen[bytes]) -> Played:
    assert process.stdout is not None
    with process.stdout as lines:
        return msgspec.json.decode(lines.read(), type=Played)


def _point(
    store: str,
    kind: str,
    processes: int,
    seconds: float,
    played: Sequence[Played],
    server: float,
    sessions: int,
) -> Point:
    taken = [latency for one in played for latency in one.latencies]
    longest = max(one.seconds for one in played)
    grown = sum(one.memory - one.memory_before for one in played)
    count = max(1, len(taken))
    return Point(
        store=store,
        kind=kind,
        processes=processes,
        offered=sum(one.due for one in played) / seconds,
        done=len(taken) / longest,
        p50=quantile(taken, 0.5) * 1e3,
        p95=quantile(taken, 0.95) * 1e3,
        p99=quantile(taken, 0.99) * 1e3,
        client=sum(one.processor for one in played) / count * 1e3,
        server=server / count * 1e3,
        session_kilobytes=grown / sessions / 1024 if kind == "agents" else 0.0,
    )


# -- what an append costs --------------------------------------------------------------------------


class Round(msgspec.Struct):
    """So many appends at once, by one process, one round after the other: seconds of a round."""

    appends: int
    wall: float
    client: float
    server: float


class Calibration(msgspec.Struct):
    """Of one store: a round of one append, and a round of many."""

    store: str
    one: Round
    many: Round

    @property
    def rate(self) -> float:
        """Appends a second of one process, many at once."""
        return self.many.appends / self.many.wall

    def costs(self) -> Costs:
        """The straight lines through both rounds, and as the disk's time what is left."""
        client_append = self._slope(lambda one: one.client)
        server_append = self._slope(lambda one: one.server)
        waited = self.one.wall - self.one.client - self.one.server
        more = self._slope(lambda one: one.wall - one.client - one.server)
        return Costs(
            client_call=max(0.0, self.one.client - client_append),
            client_append=client_append,
            server_call=max(0.0, self.one.server - server_append),
            server_append=server_append,
            flush=max(2e-5, waited),
            flush_append=max(0.0, more),
        )

    def _slope(self, of: Callable[[Round], float]) -> float:
        return max(0.0, (of(self.many) - of(self.one)) / (self.many.appends - self.one.appends))


async def calibrate(store: str, url: str, pids: Sequence[int], seconds: float) -> Calibration:
    """Measure rounds of one append, and rounds of many; each in a stream of its own."""
    async with eventctx.open(url) as engine:
        name = f"calibrate-{now()}"
        one = await _rounds(engine.store, f"{name}-one", 1, pids, seconds)
        many = await _rounds(engine.store, f"{name}-many", MANY, pids, seconds)
    return Calibration(store, one, many)


async def _rounds(
    store: Any, name: str, appends: int, pids: Sequence[int], seconds: float
) -> Round:
    heads = [-1] * appends

    async def append(stream: int) -> None:
        drafts = drafts_of_append()
        head, heads[stream] = heads[stream], heads[stream] + len(drafts)
        await store.append(f"{name}-{stream}", drafts, head if head >= 0 else NO_STREAM)

    walls: list[float] = []
    # The first round makes the streams.
    await asyncio.gather(*[append(stream) for stream in range(appends)])
    began, client, server = now(), time.process_time(), processor_seconds(pids)
    while now() - began < seconds:
        at = now()
        await asyncio.gather(*[append(stream) for stream in range(appends)])
        walls.append(now() - at)
    count = len(walls)
    return Round(
        appends,
        quantile(walls, 0.5),
        (time.process_time() - client) / count,
        (processor_seconds(pids) - server) / count,
    )
