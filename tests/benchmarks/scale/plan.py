"""What a number of agents needs of servers, computed from what was measured and what is assumed.

Nothing here was tried on machines of that size. Each limit says how many servers it asks for; the
largest is what breaks first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median
from typing import Final

import msgspec

from tests.benchmarks.scale.measure import Measured
from tests.benchmarks.scale.points import Point
from tests.benchmarks.scale.queueing import Costs, Outcome, Shape, simulate
from tests.benchmarks.scale.requests import mean

DAY: Final = 86_400
QUORUM, JETSTREAM = "postgresql, quorum", "jetstream, 3 replicas"


class Assumptions(msgspec.Struct, frozen=True):
    """What the computed figures rest on besides measurements; put in your own."""

    cores: int = 32
    """Of a server. A core is taken to be as fast as one of the measured machine."""
    busy: float = 0.6
    """Share of a core that may be in use, of servers and of agents' processes."""
    flush: float = 100e-6
    """Seconds of a sync to a disk with power-loss protection."""
    disk_bandwidth: float = 500e6
    """Bytes a second that a disk writes for hours."""
    network: float = 1.25e9
    """Bytes a second of a server's network, one way."""
    round_trip: float = 500e-6
    """Seconds between zones, there and back."""
    disk: float = 30e12
    """Bytes of a server's disks."""
    memory: float = 64e9
    """Bytes of a server that an index of subjects may take."""
    connections: int = 1_000
    """Of a PostgreSQL server."""
    freeze_age: float = 1e9
    """Transactions behind which PostgreSQL vacuums a whole table against wraparound: its
    autovacuum_freeze_max_age, raised from 200 million."""
    freezes: float = 1.0
    """Such vacuums a day."""
    retention: float = 30.0
    """Days that sessions are kept where they were written."""
    copies: int = 3
    block_price: float = 0.08
    """Dollars for a GB of block storage and a month."""
    object_price: float = 0.023
    """Dollars for a GB of object storage and a month."""
    traffic_price: float = 0.02
    """Dollars for a GB from one zone to another, both sides together."""
    core_price: float = 0.04
    """Dollars for a core and an hour."""


POSITIONS: Final = 2**43
"""Transactions that a global position has room for: 63 bits less the 20 of the record's ordinal."""

WINDOW: Final = 64
"""Calls of a process that JetStream has under way; PostgreSQL's writer waits for each."""

APPENDS: Final = 12_000
"""Of a simulated run."""


class Request(msgspec.Struct, frozen=True):
    """Means of a recorded request."""

    appends: float
    records: float
    bytes: float
    in_session: float
    """Requests of a session."""


class Store(msgspec.Struct, frozen=True):
    """What a request takes of a store: bytes, and seconds of processor."""

    name: str
    disk: float
    changes: float
    client: float
    leader: float
    follower: float
    """Of each of the two that replicate."""


class Needs(msgspec.Struct, frozen=True):
    """Of so many requests a second on one kind of store."""

    store: str
    requests: float
    appends: float
    records: float
    content: float
    """Bytes a second that the records hold."""
    changes: float
    """Bytes a second to the log of changes of one copy."""
    replicated: float
    """Bytes a second from leaders to the others."""
    kept: float
    """Bytes of one copy within the retention."""
    sessions: float
    """A day."""
    client_cores: float
    processes: int
    connections: int
    shards: int
    """Streams that the appends need, if each does no more than one did here; 0 without streams."""
    limits: Mapping[str, float]
    """How many servers (leaders) each limit asks for."""
    transactions: float
    """A second, of all leaders; 0 where there are none."""
    latency: Outcome
    dollars: Mapping[str, float]
    """A month."""

    @property
    def servers(self) -> int:
        """Leaders; each has two that replicate it."""
        return max(1, ceil(max(self.limits.values())))

    @property
    def first(self) -> str:
        """What breaks first."""
        return max(self.limits, key=lambda name: self.limits[name])


def request(found: Measured) -> Request:
    """The mean request of all recordings, each weighing as many requests as it has."""
    total = mean(found.played)
    return Request(
        total.appends / total.requests,
        total.records / total.requests,
        total.bytes / total.requests,
        total.requests / len(found.played),
    )


def stores(found: Measured) -> dict[str, Store]:
    """PostgreSQL with a quorum and JetStream, as they are computed with."""
    prints = {one.store: one for one in found.footprints}
    postgres, stream = prints["postgresql"], prints["jetstream"]
    alone = _server(found.agents, "postgresql")
    together = _server(found.agents, QUORUM)
    cluster = _server(found.agents, JETSTREAM)
    return {
        QUORUM: Store(
            QUORUM,
            postgres.disk / postgres.requests,
            postgres.changes / postgres.requests,
            _client(found.agents, QUORUM),
            alone,
            max(0.0, together - alone) / 2,
        ),
        JETSTREAM: Store(
            JETSTREAM,
            stream.disk / stream.requests,
            stream.changes / stream.requests,
            _client(found.agents, JETSTREAM),
            # The three share the work of leading all streams.
            cluster / 3,
            cluster / 3,
        ),
    }


def _held(points: Sequence[Point], store: str) -> list[Point]:
    own = [one for one in points if one.store == store]
    return [one for one in own if one.holds] or own[:1]


def _client(points: Sequence[Point], store: str) -> float:
    return median(one.client for one in _held(points, store)) / 1e3


def _server(points: Sequence[Point], store: str) -> float:
    return median(one.server for one in _held(points, store)) / 1e3


def subject_bytes(found: Measured) -> float:
    """Bytes of a server's memory for each subject, between the least and the most measured."""
    first, last = found.subjects[0], found.subjects[-1]
    return (last.memory - first.memory) / (last.subjects - first.subjects)


def needs(found: Measured, store: Store, requests: float, given: Assumptions) -> Needs:
    """What so many requests a second need."""
    one = request(found)
    appends, changes = requests * one.appends, requests * store.changes
    kept = requests * store.disk * DAY * given.retention
    sessions = requests * DAY / one.in_session
    client_cores = requests * store.client / given.busy
    processes = max(1, ceil(client_cores))
    each = found.connections.subscribed if store.name == QUORUM else 1
    connections = processes * each
    costs = costs_of(found, store, one, given)
    leaders = requests * store.leader / (given.cores * given.busy)
    limits = {
        "processor": leaders,
        "disk's bandwidth": changes / given.disk_bandwidth,
        "network": 2 * changes / (given.network * given.busy),
        f"disk, {given.retention:g} days": kept / given.disk,
    }
    if store.name == QUORUM:
        limits["connections"] = connections / given.connections
    servers = max(1, ceil(max(limits.values())))
    outcome = simulate(appends / servers, shape(given, processes / servers, store), costs, APPENDS)
    transactions = 0.0
    if store.name == QUORUM:
        transactions = appends / outcome.mean_batch
        limits["transaction numbers"] = transactions * DAY / (given.freeze_age * given.freezes)
    else:
        subjects = sessions * given.retention * 2
        limits["memory of subjects"] = subjects * subject_bytes(found) / given.memory
    servers = max(1, ceil(max(limits.values())))
    cores = (requests * (store.leader + 2 * store.follower)) / given.busy
    month = DAY * 30
    return Needs(
        store.name,
        requests,
        appends,
        requests * one.records,
        requests * one.bytes,
        changes,
        2 * changes,
        kept,
        sessions,
        client_cores,
        processes,
        connections,
        0 if store.name == QUORUM else ceil(appends / leading(found)),
        limits,
        transactions,
        simulate(appends / servers, shape(given, processes / servers, store), costs, APPENDS),
        {
            "block storage": kept * given.copies / 1e9 * given.block_price,
            "traffic between zones": 2 * changes * month / 1e9 * given.traffic_price,
            "cores of the servers": cores * 24 * 30 * given.core_price,
            "cores of the agents' processes": client_cores * 24 * 30 * given.core_price,
            "a month's records in object storage": requests
            * one.bytes
            * month
            / 1e9
            * given.object_price,
        },
    )


def leading(found: Measured) -> float:
    """Appends a second that one stream of three replicas did here at most."""
    return max(one.done for one in found.appends if one.store == JETSTREAM)


def costs_of(found: Measured, store: Store, one: Request, given: Assumptions) -> Costs:
    """The measured costs of an append, with the assumed disk."""
    kind = QUORUM if store.name == QUORUM else JETSTREAM
    measured = next(c for c in found.calibrations if c.store == kind).costs()
    bytes_of_append = store.changes / one.appends
    # Of all servers together one is the leader, whose work an append waits for.
    return measured._replace(
        server_call=measured.server_call / 3,
        server_append=measured.server_append / 3,
        flush=given.flush,
        flush_append=bytes_of_append / given.disk_bandwidth,
    )


def shape(given: Assumptions, processes: float, store: Store) -> Shape:
    """A leader with its own cores, a replica in another zone, and its share of the processes."""
    many = max(1, round(processes))
    return Shape(
        processes=many,
        client_cores=many,
        server_cores=given.cores,
        window=1 if store.name == QUORUM else WINDOW,
        round_trip=given.round_trip,
        replica=True,
    )


def deviation(pairs: Sequence[tuple[Point, Outcome]]) -> tuple[float, float]:
    """How far the simulated median latency is off where the store keeps up: as a factor, in the
    middle and at most."""
    ratios = [simulated.p50 * 1e3 / point.p50 for point, simulated in pairs if point.holds]
    factors = [max(ratio, 1 / ratio) for ratio in ratios]
    return (median(factors), max(factors)) if factors else (float("nan"), float("nan"))


def compared(found: Measured) -> list[tuple[Point, Outcome]]:
    """Each measured load of appends, and what the simulation makes of it on this machine."""
    costs = {one.store: one.costs() for one in found.calibrations}
    cores = int(found.machine["cpus"])
    pairs: list[tuple[Point, Outcome]] = []
    for point in found.appends:
        here = Shape(
            processes=point.processes,
            client_cores=cores,
            window=WINDOW if point.store == JETSTREAM else 1,
        )
        appends = min(20_000, max(2_000, round(point.offered * 6)))
        pairs.append((point, simulate(point.offered, here, costs[point.store], appends)))
    return pairs
