"""A simulation of appends that share commits: processes, the server's cores, one disk, a replica.

Appends arrive at random (Poisson), each at one of ``processes`` client processes. A process sends
all appends that wait, at most ``batch`` of them, as one call, as soon as it has sent the last one
and one of its ``window`` calls is free. A call takes time of a client's core and of one of the
server's cores. Then it waits for the disk, which makes everything durable that waits when it begins
(group commit). A replica, if there is one, receives what is durable after half a round trip and
does the same. A call is acknowledged when its last disk has it and half a round trip has passed.

All times are in seconds. Nothing here knows PostgreSQL or JetStream; their figures are parameters.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from tests.benchmarks.timing import quantile


class Costs(NamedTuple):
    """What an append costs, besides waiting: each first a share for a call, then for an append."""

    client_call: float
    client_append: float
    server_call: float
    server_append: float
    flush: float
    """The disk's time to make anything durable."""
    flush_append: float
    """The disk's time for each append in it."""


class Shape(NamedTuple):
    """The machines. Without ``server_cores`` of its own a server shares the client's cores."""

    processes: int
    client_cores: int
    server_cores: int = 0
    window: int = 1
    batch: int = 512
    round_trip: float = 0.0
    replica: bool = False


class Outcome(NamedTuple):
    """Of one simulated run."""

    offered: float
    done: float
    p50: float
    p99: float
    mean_batch: float
    server_busy: float
    disk_busy: float


class Cores:
    """So many cores that take jobs in the order of their arrival."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._free = number
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self.busy = 0.0

    def use(self, seconds: float, then: Callable[[], None]) -> None:
        """Call ``then`` when a core has worked for ``seconds``."""
        self._waiting.append((seconds, then))
        self._next()

    def _next(self) -> None:
        while self._free and self._waiting:
            seconds, then = self._waiting.popleft()
            self._free -= 1
            self.busy += seconds
            self._run.after(seconds, lambda then=then: self._finished(then))  # type: ignore[misc]

    def _finished(self, then: Callable[[], None]) -> None:
        self._free += 1
        self._next()
        then()


class Disk:
    """Makes durable in one go whatever waits when it begins."""

    def __init__(self, run: Run, flush: float, flush_append: float) -> None:
        self._run = run
        self._flush, self._flush_append = flush, flush_append
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._working = False
        self.busy = 0.0

    def write(self, appends: int, then: Callable[[], None]) -> None:
        """Call ``then`` when so many appends are durable."""
        self._waiting.append((appends, then))
        self._next()

    def _next(self) -> None:
        if self._working or not self._waiting:
            return
        taken, self._waiting = self._waiting, []
        self._working = True
        seconds = self._flush + self._flush_append * sum(appends for appends, _ in taken)
        self.busy += seconds
        self._run.after(seconds, lambda: self._finished([then for _, then in taken]))

    def _finished(self, calls: list[Callable[[], None]]) -> None:
        self._working = False
        for then in calls:
            then()
        self._next()


class Process:
    """A client process: a queue of appends, and calls under way."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._queue: deque[float] = deque()
        self._free = run.shape.window
        self._sending = False

    def append(self) -> None:
        """An append arrived."""
        self._queue.append(self._run.now)
        self._next()

    def _next(self) -> None:
        if not self._free or not self._queue or self._sending:
            return
        self._free -= 1
        self._sending = True
        size = min(len(self._queue), self._run.shape.batch)
        call = Call(self._run, self, [self._queue.popleft() for _ in range(size)])
        costs = self._run.costs
        self._run.client.use(costs.client_call + costs.client_append * size, call.send)

    def sent(self) -> None:
        """A call has left: the next may be made."""
        self._sending = False
        self._next()

    def acknowledged(self) -> None:
        """A call has come back."""
        self._free += 1
        self._next()


class Call:
    """Appends on their way: to the server, its disk, the replica's disk, and back."""

    def __init__(self, run: Run, process: Process, began: list[float]) -> None:
        self._run = run
        self._process = process
        self._began = began
        run.calls += 1
        run.sent += len(began)

    def send(self) -> None:
        """The client is done with it."""
        self._process.sent()
        self._travel(self._arrive)

    def _travel(self, then: Callable[[], None]) -> None:
        self._run.after(self._run.shape.round_trip / 2, then)

    def _arrive(self) -> None:
        costs = self._run.costs
        seconds = costs.server_call + costs.server_append * len(self._began)
        self._run.server.use(seconds, self._write)

    def _write(self) -> None:
        stored = self._replicate if self._run.shape.replica else self._answer
        self._run.disk.write(len(self._began), stored)

    def _replicate(self) -> None:
        self._travel(lambda: self._run.replica.write(len(self._began), self._confirm))

    def _confirm(self) -> None:
        self._travel(self._answer)

    def _answer(self) -> None:
        self._travel(self._acknowledge)

    def _acknowledge(self) -> None:
        now = self._run.now
        self._run.latencies.extend((began, now - began) for began in self._began)
        self._process.acknowledged()


class Run:
    """One simulation: its clock, its machines, and what was acknowledged."""

    def __init__(self, shape: Shape, costs: Costs) -> None:
        self.shape, self.costs = shape, costs
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self.client = Cores(self, shape.client_cores)
        self.server = Cores(self, shape.server_cores) if shape.server_cores else self.client
        self.disk = Disk(self, costs.flush, costs.flush_append)
        self.replica = Disk(self, costs.flush, costs.flush_append)
        self.latencies: list[tuple[float, float]] = []
        self.calls = self.sent = 0

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Call ``then`` so much later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._number), then))

    def play(self, until: float) -> None:
        """Let everything happen that happens before ``until``."""
        while self._events and self._events[0][0] <= until:
            self.now, _, then = heapq.heappop(self._events)
            then()


def simulate(rate: float, shape: Shape, costs: Costs, appends: int = 40_000) -> Outcome:
    """The outcome of ``rate`` appends a second; the first fifth of the run is not counted."""
    dice = random.Random(1)  # noqa: S311 - the same arrivals in every run
    run = Run(shape, costs)
    processes = [Process(run) for _ in range(shape.processes)]
    seconds = appends / rate

    def arrive() -> None:
        dice.choice(processes).append()
        run.after(dice.expovariate(rate), arrive)

    run.after(dice.expovariate(rate), arrive)
    run.play(seconds)
    warm = seconds / 5
    taken = [latency for began, latency in run.latencies if began >= warm]
    ended = sum(began + latency >= warm for began, latency in run.latencies)
    cores = shape.server_cores or shape.client_cores
    return Outcome(
        offered=rate,
        done=ended / (seconds - warm),
        p50=quantile(taken, 0.5) if taken else float("inf"),
        p99=quantile(taken, 0.99) if taken else float("inf"),
        mean_batch=run.sent / max(1, run.calls),
        server_busy=run.server.busy / seconds / cores,
        disk_busy=run.disk.busy / seconds,
    )


def carried(shape: Shape, costs: Costs, within: float = 0.05, appends: int = 20_000) -> float:
    """The most appends a second, to a twentieth, of which 99 % are acknowledged within so long."""
    low, high = 1.0, 2.0
    while _holds(high, shape, costs, within, appends):
        low, high = high, high * 2
        if high > 1e8:
            return low
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        if _holds(middle, shape, costs, within, appends):
            low = middle
        else:
            high = middle
    return low


def _holds(rate: float, shape: Shape, costs: Costs, within: float, appends: int) -> bool:
    # Long enough for a queue that grows to be seen in the latency.
    enough = max(appends, int(rate * within * 8))
    outcome = simulate(rate, shape, costs, enough)
    return outcome.p99 <= within and outcome.done >= 0.97 * rate
