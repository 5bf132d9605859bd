"""A server that is lost in the middle of an append: the ids show what it had stored.

Whatever is done to the server, what was acknowledged is there once, in order, with its digests, and
what was refused is not there.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from eventctx.errors import StoreReadOnly, StoreUnavailable, WrongExpectedVersion
from eventctx.log.store import ANY, NO_STREAM
from eventctx.stores.postgres import connections
from eventctx.stores.postgres.store import PostgresStore
from tests.services.in_memory import memory_folder
from tests.services.postgres_server import Server


@pytest.fixture(scope="module")
def victim(postgres: Server) -> Iterator[Server]:
    """A server that may be killed; the other one is shared with all tests."""
    with Server(place=memory_folder()) as server:
        yield server


_schemas = itertools.count(1)


@pytest.fixture
async def place(victim: Server) -> AsyncIterator[str]:
    yield victim.url(schema=f"victim_{next(_schemas)}")
    victim.resume()
    if not victim.running:
        victim.start()


async def write(store, draft, stream, count, acknowledged, until=None):
    """Appends that expect a version, one after the other; returns how many.

    ``count`` of them, and more until the event ``until`` is set.
    """
    step = 0
    while step < count or not (until is None or until.is_set()):
        done = await store.append(stream, [draft(f"{stream} {step}"), draft()], 2 * step - 1)
        acknowledged[stream] = done.receipt
        step += 1
    return step


async def end_connections(victim, writers, progress, enough):
    """End all connections once what was written has grown by 20; sets ``enough`` after four.

    Sooner it would be the same connections' beginnings again, and nobody would come to an end.
    """
    ended, before = 0, 0
    while not writers.done():
        if progress() >= before + 20:
            before = progress()
            ended += len(
                await asyncio.to_thread(
                    victim.execute,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'eventctx'",
                )
            )
            if ended > 3:
                enough.set()
        await asyncio.sleep(0.002)


def has_all(standby: Server, primary: Server) -> None:
    """Return once the standby has replayed all that the primary has written by now."""
    ((written,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
    until = time.monotonic() + 60
    behind = f"SELECT coalesce(pg_last_wal_replay_lsn() < '{written}', true)"
    while standby.execute(behind) == [(True,)]:
        assert time.monotonic() < until, "the standby does not catch up"
        time.sleep(0.02)


async def check(store, collect, chained, acknowledged, counts):
    for stream, receipt in acknowledged.items():
        records = await collect(store.read(stream))
        chained(records)
        assert len(records) == counts[stream]
        assert len({record.id for record in records}) == len(records)
        assert records[receipt.position].digest == receipt.digest


async def test_connections_that_are_ended_in_mid_append_lose_and_double_nothing(
    victim, place, draft, collect, chained
):
    store = await PostgresStore.open(place)
    acknowledged: dict = {}
    names = [f"s{n}" for n in range(10)]
    enough = asyncio.Event()
    writers = asyncio.gather(*(write(store, draft, n, 60, acknowledged, enough) for n in names))
    await end_connections(
        victim, writers, lambda: sum(receipt.position for receipt in acknowledged.values()), enough
    )
    counts = {name: 2 * steps for name, steps in zip(names, await writers, strict=True)}
    await check(store, collect, chained, acknowledged, counts)
    await store.close()


async def test_appends_that_expect_no_version_are_not_doubled_either(
    victim, place, draft, collect, chained
):
    stores = [await PostgresStore.open(place) for _ in range(2)]
    added = 0
    enough = asyncio.Event()

    async def add(store, name):
        nonlocal added
        step = 0
        while step < 60 or not enough.is_set():
            await store.append("shared", [draft(f"{name} {step}")], ANY)
            step += 1
            added += 1
        return step

    writers = asyncio.gather(*(add(store, n) for n, store in enumerate(stores)))
    await end_connections(victim, writers, lambda: 4 * added, enough)
    steps = await writers
    records = await collect(stores[0].read("shared"))
    chained(records)
    texts = [record.bodies[0].data.decode() for record in records]
    assert len(texts) == sum(steps)
    for n, count in enumerate(steps):
        of_one = [text for text in texts if text.startswith(f"{n} ")]
        assert of_one == [f"{n} {step}" for step in range(count)]
    for store in stores:
        await store.close()


async def test_a_server_that_is_killed_and_comes_back_loses_nothing_acknowledged(
    victim, place, draft, collect, chained
):
    store = await PostgresStore.open(place)
    acknowledged: dict = {}
    names = [f"s{n}" for n in range(10)]
    writers = asyncio.gather(*(write(store, draft, n, 150, acknowledged) for n in names))
    for _ in range(2):
        before = max([receipt.position for receipt in acknowledged.values()], default=-1)
        async for record in store.subscribe(stream="s0", after=before):
            if record.position > before + 10:
                break
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)
    await writers
    await check(store, collect, chained, acknowledged, dict.fromkeys(names, 300))
    await store.close()


async def test_a_server_that_stays_away_is_an_error_and_the_append_can_be_made_again(
    victim, place, draft, collect
):
    store = await PostgresStore.open(place, patience=0.5)
    await store.append("s", [draft("a")], NO_STREAM)
    await asyncio.to_thread(victim.kill)
    late = [draft("b")]
    with pytest.raises(StoreUnavailable, match="may be stored or not"):
        await store.append("s", late, 0)
    with pytest.raises(StoreUnavailable):
        await collect(store.read("s"))
    with pytest.raises(StoreUnavailable):
        await PostgresStore.open(place, patience=0.2)
    await asyncio.to_thread(victim.start)
    assert (await store.append("s", late, 0)).receipt.position == 1
    assert len(await collect(store.read("s"))) == 2
    await store.close()


async def test_a_server_that_was_halted_has_an_end_to_every_wait(
    victim, place, draft, collect, monkeypatch
):
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.3)
    store = await PostgresStore.open(place + "&connect_timeout=2")
    await store.append("s", [draft("a")], NO_STREAM)
    victim.pause()
    under_way = asyncio.ensure_future(wait(store.append("s", [draft("b")], 0)))
    await asyncio.sleep(1)
    victim.resume()
    async with asyncio.timeout(60):
        assert (await under_way).receipt.position == 1
    assert len(await collect(store.read("s"))) == 2
    await store.close()


async def wait(awaitable):
    return await awaitable


async def test_closing_waits_for_what_was_queued_when_the_server_was_lost(
    victim, place, draft, collect
):
    store = await PostgresStore.open(place)
    await store.append("s", [draft("a")], NO_STREAM)
    await asyncio.to_thread(victim.kill)
    store.append("s", [draft("b")], 0)
    closing = asyncio.create_task(store.close())
    await asyncio.to_thread(victim.start)
    await closing
    store = await PostgresStore.open(place)
    assert len(await collect(store.read("s"))) == 2
    await store.close()


async def test_a_standby_is_read_and_followed_but_not_written(victim, place, draft, collect):
    store = await PostgresStore.open(place)
    await store.append("s", [draft("a"), draft("b")], NO_STREAM)
    schema = place.rpartition("=")[2]
    with await asyncio.to_thread(victim.standby, "reader") as standby:
        reading = await PostgresStore.open(standby.url(schema=schema))
        assert reading.read_only
        assert len(await collect(reading.read("s"))) == 2
        assert await reading.load_snapshot("s", "view") is None
        with pytest.raises(StoreReadOnly, match="target_session_attrs"):
            await reading.append("s", [draft("c")], 1)
        news = reading.subscribe(after=(await collect(store.read_all()))[-1].global_position)
        coming = asyncio.ensure_future(wait(anext(news)))
        done = await store.append("s", [draft("c")], 1)
        async with asyncio.timeout(60):
            assert (await coming).digest == done.receipt.digest
        await news.aclose()
        await reading.close()
        await store.close()


async def test_of_several_servers_the_primary_is_taken_wherever_it_stands(
    victim, place, draft, monkeypatch
):
    schema = place.rpartition("=")[2]
    with await asyncio.to_thread(victim.standby, "first") as standby:
        both = (
            f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{victim.port}/postgres"
            f"?schema={schema}"
        )
        for read_only in (False, True):
            store = await PostgresStore.open(both, read_only=read_only)
            assert str(victim.port) in (await store.describe()).place
            await store.close()
        await asyncio.to_thread(has_all, standby, victim)  # the store was made meanwhile
        standbys = await PostgresStore.open(both + "&target_session_attrs=any", read_only=True)
        assert str(standby.port) in (await standbys.describe()).place
        await standbys.close()
        monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
        standbys = await PostgresStore.open(both, read_only=True)
        assert str(standby.port) in (await standbys.describe()).place
        await standbys.close()


async def test_a_server_that_refuses_us_is_no_reason_to_give_up_the_others(victim, place):
    """While it is set up anew, say; but where each of them says no, nobody waits."""
    schema = place.rpartition("=")[2]
    lost = f"postgresql://postgres@127.0.0.1:{victim.port},127.0.0.1:1/nowhere?schema={schema}"
    began = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
        await PostgresStore.open(lost, patience=1)
    assert asyncio.get_running_loop().time() - began > 1
    assert "\n" not in str(raised.value)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await PostgresStore.open(lost.replace(":1/", f":{victim.port}/"), patience=600)


@pytest.mark.parametrize("attributes", ["", "&target_session_attrs=read-write"])
async def test_a_primary_that_became_a_standby_is_looked_for_among_the_other_servers(
    victim, place, draft, collect, chained, attributes
):
    schema = place.rpartition("=")[2]
    with await asyncio.to_thread(victim.standby, "next") as standby:
        both = (
            f"postgresql://postgres@127.0.0.1:{victim.port},127.0.0.1:{standby.port}/postgres"
            f"?schema={schema}{attributes}"
        )
        store = await PostgresStore.open(both)
        for step in range(5):
            await store.append("s", [draft(str(step))], step - 1)
        await asyncio.to_thread(has_all, standby, victim)
        await asyncio.to_thread(victim.kill)
        under_way = store.append("s", [draft("5")], 4)
        await asyncio.to_thread(standby.promote)
        async with asyncio.timeout(60):
            assert (await under_way).receipt.position == 5
        with pytest.raises(WrongExpectedVersion):
            await store.append("s", [draft("6")], 4)
        chained(await collect(store.read("s")))
        await store.close()
