"""Faults of machines, tried under load; what was found is judged, and noted for the table."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from eventctx.aio import finish
from tests.faults.histories import Finding, check, count
from tests.faults.servers.machines import Machines
from tests.faults.servers.networks import Network
from tests.faults.workload import Load, run

HALT_SECONDS = 3.0
"""How long a machine is halted. It is longer than the servers wait for a sign of life."""


class Row(NamedTuple):
    """What the trials of one fault came to; ``stall`` is the longest of all, in seconds."""

    store: str
    fault: str
    trials: int
    acknowledged: int
    unknown: int
    found: Counter[str]
    stall: float


ROWS: list[Row] = []
"""Every fault that was tried by this process."""


async def try_out(
    machines: Machines,
    fault: Callable[[], None],
    name: str,
    trials: int,
    load: Load,
    *,
    fresh_reads: bool = True,
    seed: int = 1,
) -> Counter[str]:
    """Try a fault so often; returns how often each rule of histories was broken.

    Each trial has a store of its own, whose making is on the disks: the fault strikes what is
    appended, not tables.

    Raises what ``run`` raises.
    """
    found: Counter[str] = Counter()
    acknowledged = unknown = 0
    stall = 0.0
    for trial in range(trials):
        machines.fresh()
        done = await run(
            machines.open,
            # To its end, also when a client fails meanwhile: it may start servers again.
            lambda: finish(asyncio.to_thread(fault)),
            load,
            settle=lambda: asyncio.to_thread(machines.settle),
            seed=seed * 1000 + trial,
        )
        findings = check(done.history, done.stored, fresh_reads=fresh_reads)
        # Nobody damaged anything, so nobody should have been told so.
        findings += [Finding("damage where none is", what) for what in done.loud]
        broken = count(findings)
        for rule in broken:
            print(*[f"{rule}: {one.what}" for one in findings if one.rule == rule][:5], sep="\n")
        found += broken
        acknowledged += len(done.history.acknowledged())
        unknown += sum(one.outcome == "unknown" for one in done.history.appends)
        stall = max(stall, done.stall)
    ROWS.append(Row(machines.name, name, trials, acknowledged, unknown, found, stall))
    return found


def table() -> str:
    heads = ("store", "fault", "trials", "acknowledged", "without an answer", "lost", "twice")
    heads += ("other findings", "longest stall")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    apart = ("lost", "duplicated", "one version twice")
    for row in ROWS:
        twice = row.found["duplicated"] + row.found["one version twice"]
        others = [f"{times} {rule}" for rule, times in row.found.items() if rule not in apart]
        shown = ", ".join(others) or "0"
        lines.append(
            f"| {row.store} | {row.fault} | {row.trials} | {row.acknowledged:,} | {row.unknown} | "
            f"{row.found['lost']} | {twice} | {shown} | {row.stall:.1f} s |"
        )
    return "\n".join(lines)


# -- faults ----------------------------------------------------------------------------------------


def kill_leader(machines: Machines) -> None:
    """The leader dies at once, another one takes over, and it comes back as a follower."""
    old = machines.leader()
    machines.kill(old)
    machines.fail_over(old)
    machines.mend()


def kill_all(machines: Machines) -> None:
    machines.kill()
    machines.mend()


def kill_lonely_leader(machines: Machines) -> None:
    """The others die, and the leader goes on alone for a second; then it dies, and they lead."""
    old = machines.leader()
    others = [number for number in range(machines.size) if number != old]
    machines.kill(*others)
    time.sleep(1.0)
    machines.kill(old)
    machines.start(*others)
    machines.fail_over(old)
    machines.mend()


def halt_leader(machines: Machines, seconds: float = HALT_SECONDS) -> None:
    """The leader is halted and goes on; meanwhile another one may have taken over."""
    old = machines.leader()
    machines.pause(old)
    try:
        time.sleep(seconds)
    finally:
        machines.resume(old)
    machines.mend()


def replace_halted_leader(machines: Machines) -> None:
    """The leader is halted, another one takes over, and the old one goes on as if it led."""
    old = machines.leader()
    machines.pause(old)
    try:
        machines.fail_over(old)
        time.sleep(HALT_SECONDS)
    finally:
        machines.resume(old)
    time.sleep(HALT_SECONDS)
    machines.mend()


def cut_off_leader(machines: Machines, network: Network, *, from_clients: bool = True) -> None:
    """The leader is cut off from the other machines; it may be left to its clients."""
    old = machines.leader()
    if from_clients:
        network.pull(old)
    else:
        network.part(old)
    try:
        machines.fail_over(old)
        time.sleep(2 * HALT_SECONDS)
    finally:
        network.heal()
    machines.mend()
