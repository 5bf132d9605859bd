"""What a NATS server holds in memory for each subject: a stream with so many, a message in each.

JetStream keeps an index of the subjects of each stream in memory, on every replica, and makes it
again when it starts. The stream here has one replica; each of three would hold as much.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import nats
from nats.js.api import StorageType, StreamConfig

from tests.benchmarks.timing import now
from tests.services import nats_server

STREAM = "MANY"
COUNTS = (0, 100_000, 200_000, 500_000, 1_000_000)
PAYLOAD = b"x" * 100
_PAUSE = 2_000
"""Messages sent before the server is asked whether it has them."""


class Step(msgspec.Struct):
    """A server with so many subjects: bytes in memory, before and after a new start."""

    subjects: int
    memory: int
    restarted: int = 0
    start_seconds: float = 0.0


async def measure(counts: tuple[int, ...] = COUNTS) -> list[Step]:
    """One server through all counts, then started anew with the last."""
    found: list[Step] = []
    with nats_server.running(sync=None) as cluster:
        client = await nats.connect(cluster.servers[0])
        stream = client.jetstream(timeout=60)
        config = StreamConfig(name=STREAM, subjects=[f"{STREAM}.>"], storage=StorageType.FILE)
        await stream.add_stream(config)
        node = cluster.leader(STREAM)
        stored = 0
        for wanted in counts:
            for number in range(stored, wanted):
                # As long as a session's id of 36 characters, which is what a subject has in it.
                await client.publish(f"{STREAM}.0.r.{number:036d}", PAYLOAD)
                if number % _PAUSE == 0:
                    await client.flush(60)
            await _until(stream, wanted)
            stored = wanted
            found.append(Step(wanted, await _settled(_pid(cluster, node))))
        await client.close()
        cluster.stop(node)
        began = now()
        cluster.start(node)
        found[-1].start_seconds = now() - began
        found[-1].restarted = await _settled(_pid(cluster, node))
    return found


async def _until(stream: Any, messages: int) -> None:
    # The server counts what it has stored; it has nothing to wait for.
    while (await stream.stream_info(STREAM)).state.messages < messages:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def _settled(pid: int) -> int:
    """The least memory within two seconds: the collector of the server's runtime comes and goes."""
    least = resident(pid)
    until = now() + 2.0
    while now() < until:
        await asyncio.sleep(0.1)
        least = min(least, resident(pid))
    return least


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _pid(cluster: nats_server.Cluster, node: int) -> int:
    process = cluster.nodes[node].process
    assert process is not None
    return process.pid
