"""SqliteStore under real processes: killed, competing, leaving early, out of space."""

from __future__ import annotations

import asyncio
import random
import sys
import time

import pytest

from eventctx.log.store import ANY, Receipt
from eventctx.stores.sqlite import SqliteStore

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("tasks", [1, 20])
async def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(
    path, program, draft, collect, chained, tasks
):
    chance = random.Random(tasks)  # noqa: S311
    acknowledged: dict[tuple[str, int], bytes] = {}
    for _ in range(5):
        writer = program("writer.py", path, "s", tasks)
        first = await asyncio.to_thread(writer.stdout.readline)
        await asyncio.to_thread(time.sleep, chance.uniform(0.0, 0.12))
        writer.kill()
        output, errors = await asyncio.to_thread(writer.communicate)
        assert errors == ""
        lines = (first + output).splitlines()
        assert lines
        for receipt in map(Receipt.parse, lines):
            acknowledged[receipt.stream, receipt.position] = receipt.digest

        store = await SqliteStore.open(path)
        async for info in store.streams():
            records = await collect(store.read(info.stream))
            chained(records)
            assert len(records) % 3 == 0, "half a batch"
            for (stream, position), digest in acknowledged.items():
                if stream == info.stream:
                    assert records[position].digest == digest
        await store.close()

    store = await SqliteStore.open(path)
    assert {stream for stream, _ in acknowledged} <= {i.stream async for i in store.streams()}
    done = await store.append("s0", [draft("after")], ANY)
    assert done.receipt.position > max(p for stream, p in acknowledged if stream == "s0")
    await store.close()


async def test_processes_that_write_to_one_file_lose_and_repeat_nothing(
    path, program, collect, chained
):
    names, count = ("one", "two", "three"), 60
    follower = await SqliteStore.open(path)
    total = len(names) * count * 3

    async def follow():
        found = []
        async for record in follower.subscribe():
            found.append(record)
            if len(found) == total:
                break
        return found

    live = asyncio.create_task(follow())
    processes = [program("competitor.py", path, name, count) for name in names]
    outputs = [await asyncio.to_thread(process.communicate) for process in processes]
    assert [errors for _, errors in outputs] == ["", "", ""]
    async with asyncio.timeout(60):
        delivered = await live
    everything = await collect(follower.read_all(bodies=False))
    assert delivered == everything
    assert [r.global_position for r in everything] == list(range(total))
    won = [int(position) for output, _ in outputs for position in output.split("\n")[0].split()]
    assert sorted(won) == list(range(len(names) * count))
    for name in ("shared", *names):
        chained(await collect(follower.read(name)))
    assert max(int(output.split("\n")[1]) for output, _ in outputs) < 2000, "a writer starved"
    await follower.close()


async def test_a_process_that_ends_without_closing_still_writes_what_it_queued(
    path, program, collect, chained
):
    output, errors = await asyncio.to_thread(program("leaver.py", path, 2000).communicate)
    assert (output, errors) == ("", "")
    store = await SqliteStore.open(path)
    records = await collect(store.read("s"))
    assert len(records) == 2000
    chained(records)
    await store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of file size")
@pytest.mark.parametrize("room", [150_000, 600_000, 4_300_000])
async def test_a_full_disk_is_a_typed_error_and_loses_nothing(
    path, program, collect, chained, room
):
    output, errors = await asyncio.to_thread(program("filler.py", path, room).communicate)
    assert errors == ""
    lines = output.splitlines()
    full = next(index for index, line in enumerate(lines) if line.startswith("full"))
    assert "no space left" in lines[full]
    receipts = [Receipt.parse(line) for line in lines[:full]]
    readable = int(lines[full + 1].removeprefix("read "))
    assert readable >= receipts[-1].position + 1
    assert readable % 2 == 0, "half an append"
    assert lines[-2] == "still full"
    again = Receipt.parse(lines[-1].removeprefix("again "))
    assert again.position == readable

    store = await SqliteStore.open(path)
    records = await collect(store.read("s"))
    chained(records)
    assert len(records) == readable + 1
    for receipt in [*receipts, again]:
        assert records[receipt.position].digest == receipt.digest
    await store.close()
