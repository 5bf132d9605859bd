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
from eventctx.log.store import NO_STREAM
from eventctx.stores.postgres import connections
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import check_chain, gather
from eventctx.testing.store_contract.drafts import make_draft as draft
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


def url(place, *ports, database="postgres"):
    """The URL of a place on servers at these ports of this machine."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://postgres@{hosts}/{database}?{place.partition('?')[2]}"


async def write(store, stream, count, acknowledged):
    """``count`` appends that expect a version, one after the other."""
    for step in range(count):
        done = await store.append(stream, [draft(f"{stream} {step}"), draft()], 2 * step - 1)
        acknowledged[stream] = done.receipt


def has_all(standby: Server, primary: Server) -> None:
    """Return once the standby has replayed all that the primary has written by now."""
    ((written,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
    until = time.monotonic() + 60
    behind = f"SELECT coalesce(pg_last_wal_replay_lsn() < '{written}', true)"
    while standby.execute(behind) == [(True,)]:
        assert time.monotonic() < until, "the standby does not catch up"
        time.sleep(0.02)


async def test_a_server_that_is_killed_and_comes_back_loses_nothing_acknowledged(victim, place):
    store = await PostgresStore.open(place)
    acknowledged: dict = {}
    names = [f"s{n}" for n in range(10)]
    writers = asyncio.gather(*(write(store, n, 60, acknowledged) for n in names))
    for _ in range(2):
        before = max([receipt.position for receipt in acknowledged.values()], default=-1)
        async for record in store.subscribe(stream="s0", after=before):
            if record.position > before + 10:
                break
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)
    await writers
    for stream, receipt in acknowledged.items():
        records = await gather(store.read(stream))
        check_chain(records)
        assert len(records) == len({record.id for record in records}) == 120
        assert records[receipt.position].digest == receipt.digest
    await store.close()


async def test_a_server_that_stays_away_is_an_error_and_the_append_can_be_made_again(victim, place):
    store = await PostgresStore.open(place, patience=0.5)
    await store.append("s", [draft("a")], NO_STREAM)
    await asyncio.to_thread(victim.kill)
    late = [draft("b")]
    with pytest.raises(StoreUnavailable, match="may be stored or not"):
        await store.append("s", late, 0)
    with pytest.raises(StoreUnavailable):
        await gather(store.read("s"))
    with pytest.raises(StoreUnavailable):
        await PostgresStore.open(place, patience=0.2)
    await asyncio.to_thread(victim.start)
    assert (await store.append("s", late, 0)).receipt.position == 1
    assert len(await gather(store.read("s"))) == 2
    await store.close()


async def test_a_server_that_was_halted_has_an_end_to_every_wait(victim, place, monkeypatch):
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.3)
    store = await PostgresStore.open(place + "&connect_timeout=2")
    await store.append("s", [draft("a")], NO_STREAM)
    victim.pause()
    under_way = store.append("s", [draft("b")], 0)
    await asyncio.sleep(0.6)
    victim.resume()
    async with asyncio.timeout(60):
        assert (await under_way).receipt.position == 1
    assert len(await gather(store.read("s"))) == 2
    await store.close()


async def test_a_standby_is_read_and_followed_but_not_written(victim, place):
    store = await PostgresStore.open(place)
    await store.append("s", [draft("a"), draft("b")], NO_STREAM)
    with await asyncio.to_thread(victim.standby, "reader") as standby:
        reading = await PostgresStore.open(url(place, standby.port))
        assert reading.read_only
        assert len(await gather(reading.read("s"))) == 2
        assert await reading.load_snapshot("s", "view") is None
        with pytest.raises(StoreReadOnly, match="target_session_attrs"):
            await reading.append("s", [draft("c")], 1)
        news = reading.subscribe(after=(await gather(store.read_all()))[-1].global_position)
        coming = asyncio.ensure_future(anext(news))
        done = await store.append("s", [draft("c")], 1)
        async with asyncio.timeout(60):
            assert (await coming).digest == done.receipt.digest
        await news.aclose()
        await reading.close()
        await store.close()


async def test_of_several_servers_the_primary_is_taken_wherever_it_is(victim, place, monkeypatch):
    with await asyncio.to_thread(victim.standby, "first") as standby:
        await (await PostgresStore.open(place)).close()
        await asyncio.to_thread(has_all, standby, victim)  # the store was made meanwhile
        for attributes, environment, read_only, chosen in (
            ("", None, False, victim),
            ("", None, True, victim),
            ("&target_session_attrs=any", None, True, standby),
            ("", "standby", True, standby),
        ):
            if environment:
                monkeypatch.setenv("PGTARGETSESSIONATTRS", environment)
            both = url(place, standby.port, victim.port) + attributes
            store = await PostgresStore.open(both, read_only=read_only)
            assert str(chosen.port) in (await store.describe()).place
            await store.close()


async def test_a_server_that_refuses_us_is_no_reason_to_give_up_the_others(victim, place):
    """While it is set up anew, say; but where each of them says no, nobody waits."""
    lost = url(place, victim.port, 1, database="nowhere")
    began = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
        await PostgresStore.open(lost, patience=0.3)
    assert asyncio.get_running_loop().time() - began > 0.3
    assert "\n" not in str(raised.value)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await PostgresStore.open(lost.replace(":1/", f":{victim.port}/"), patience=600)


async def test_a_primary_that_became_a_standby_is_looked_for_among_the_other_servers(victim, place):
    with await asyncio.to_thread(victim.standby, "next") as standby:
        both = url(place, victim.port, standby.port) + "&target_session_attrs=read-write"
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
        check_chain(await gather(store.read("s")))
        await store.close()
