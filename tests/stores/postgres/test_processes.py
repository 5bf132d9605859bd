"""Several processes write the same sessions; one is forked off."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from eventctx.log.store import NO_STREAM
from eventctx.stores.postgres.store import PostgresStore


async def test_processes_that_write_the_same_session_win_each_version_once(
    postgres_place, program, collect, chained
):
    follower = await PostgresStore.open(postgres_place)
    names, count = ["a", "b", "c"], 30
    total = len(names) * count * 3

    async def follow():
        found = []
        async for record in follower.subscribe():
            found.append(record)
            if len(found) == total:
                break
        return found

    live = asyncio.create_task(follow())
    processes = [program("competitor.py", postgres_place, name, count) for name in names]
    outputs = [await asyncio.to_thread(process.communicate) for process in processes]
    assert [errors for _, errors in outputs] == ["", "", ""]
    async with asyncio.timeout(60):
        delivered = await live
    assert delivered == await collect(follower.read_all(bodies=False))
    won = [int(position) for output, _ in outputs for position in output.split("\n")[0].split()]
    assert sorted(won) == list(range(len(names) * count))
    for name in ("shared", *names):
        chained(await collect(follower.read(name)))
    await follower.close()


FORKING = """
import asyncio, atexit, os, sys
from eventctx.errors import StoreUnavailable
from eventctx.log.record import Draft
from eventctx.stores.location import open_store

def draft(number):
    return Draft(number.to_bytes(16), "test", 1, 0, b"{}")

async def use(store):
    async def subscribe():
        return [record async for record in store.subscribe()]

    for call in (
        lambda: store.append("s", [draft(9)], 0), lambda: store.head("s"), subscribe
    ):
        try:
            await call()
        except StoreUnavailable as error:
            print("refused" if "forked" in str(error) else error)
    await store.close()

loop = asyncio.new_event_loop()
store = loop.run_until_complete(open_store(sys.argv[1]))

async def wait(awaitable):
    return await awaitable

loop.run_until_complete(wait(store.append("s", [draft(0)], -1)))
sys.stdout.flush()
child = os.fork()
if child == 0:
    asyncio.set_event_loop(None)
    asyncio.run(use(store))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)  # a loop that ends in the child would leave the parent's deaf
assert os.waitpid(child, 0)[1] == 0
done = loop.run_until_complete(wait(store.append("s", [draft(1)], 0)))
print("wrote", done.receipt.position)
loop.run_until_complete(store.close())
"""


async def test_a_forked_process_is_refused_and_leaves_the_parents_connections_alone(
    postgres_place,
):
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FORKING, postgres_place],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["refused"] * 3 + ["wrote", "1"]


async def test_closing_writes_what_is_queued(postgres_place, draft, collect):
    store = await PostgresStore.open(postgres_place)
    last = store.append("s", [draft()], NO_STREAM)
    for step in range(300):
        last = store.append("s", [draft()], step)
    await store.close()
    assert (await last).receipt.position == 300
    store = await PostgresStore.open(postgres_place)
    assert len(await collect(store.read("s"))) == 301
    await store.close()
