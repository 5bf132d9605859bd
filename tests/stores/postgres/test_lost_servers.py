"""Servers that are lost in the middle of an append, and writers that others do not see yet.

Whatever is done to the server, what was acknowledged is there once, in order, with its digests, and
what was refused is not there. Transactions commit in another order than they begin: a reader that
goes by the position alone passes what commits after it, so it stops where an older one may write.
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
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import check_chain, gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from eventctx.testing.store_contract.ordering import take
from tests.faults.processes import lines_of, receipts_in
from tests.faults.processes import program as faults_program
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


async def test_a_standby_is_read_and_not_written_and_the_primary_taken_wherever_it_is(
    victim, place, monkeypatch
):
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


class Slow:
    def __init__(self, place):
        self.connection = ServerConnection(parse_url(place))
        self.transaction = self.connection.transaction()

    def begin(self):
        self.transaction.__enter__()
        self.connection.rows("SELECT pg_current_xact_id()::text")

    def append_and_commit(self):
        """One record, of a transaction that is older than all that was appended since."""
        self.connection.rows(
            "INSERT INTO eventctx.records(pos, stream, position, id, type, version, time, digest, "
            "payload, bodies, size) SELECT (pg_current_xact_id()::text::bigint << 20), stream, 1, "
            "gen_random_uuid(), type, version, time, digest, payload, 0, 0 "
            "FROM eventctx.records WHERE position = 0 AND stream = "
            "(SELECT id FROM eventctx.streams WHERE name = 'slow')"
        )
        self.transaction.__exit__(None, None, None)
        self.connection.close()


async def test_an_older_transaction_is_waited_for_by_who_reads_the_whole_log_and_skips_nothing(
    store, postgres_place, opened
):
    impatient = await opened(PostgresStore.open(postgres_place, patience=0.3))
    for stream in ("slow", "fast"):
        await store.append(stream, [draft()], NO_STREAM)
    slow = Slow(postgres_place)
    slow.begin()
    await store.append("fast", [draft()], 0)
    # A stream is followed in its own order, and waits for nobody.
    own = await asyncio.wait_for(take(store.subscribe(stream="fast"), 2), 60)
    assert [record.position for record in own] == [0, 1]
    with pytest.raises(StoreUnavailable, match=r"process \d+ of postgres \(eventctx\)"):
        await gather(impatient.read_all())
    news = store.subscribe()
    found = [await anext(news) for _ in range(2)]
    following = asyncio.ensure_future(anext(news))
    reading = asyncio.create_task(gather(store.read_all()))
    await asyncio.sleep(0.3)
    assert not following.done(), "it went past what is not settled"
    assert not reading.done()
    slow.append_and_commit()
    async with asyncio.timeout(60):
        found += [await following, await anext(news)]
        for records in (found, await reading, await gather(impatient.read_all())):
            places = [(record.stream, record.position) for record in records]
            assert places == [("slow", 0), ("fast", 0), ("slow", 1), ("fast", 1)]
    await news.aclose()


async def test_a_notification_comes_only_while_somebody_listens(store, postgres_place):
    heard = ServerConnection(parse_url(postgres_place))
    ((number,),) = heard.rows("SELECT 'eventctx.meta'::regclass::oid::text")
    heard.script(f'LISTEN "eventctx:{number}"')
    await store.append("s", [draft()], NO_STREAM)
    await store.append("s", [draft()], 0)
    assert not await asyncio.to_thread(heard.wait_for_news, 0.2, 0)
    other = await PostgresStore.open(postgres_place)
    news = other.subscribe(stream="s", after=1)
    coming = asyncio.ensure_future(anext(news))
    await asyncio.to_thread(wait_for_a_listener, heard)
    await store.append("s", [draft()], 1)
    assert (await coming).position == 2
    assert await asyncio.to_thread(heard.wait_for_news, 5, 0)
    await news.aclose()
    await other.close()
    heard.close()


def wait_for_a_listener(connection):
    while not connection.rows(
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' "
        "AND classid = 'eventctx.meta'::regclass"
    ):
        time.sleep(0.01)


HELD = "readers of the whole log wait"


async def said_when(store, *, held=True):
    """The description's line on the fence, once it is there; or once it is gone."""
    for _ in range(400):
        facts = (await store.describe()).facts
        if (HELD in facts) == held:
            return facts.get(HELD)
        await asyncio.sleep(0.05)
    raise TimeoutError(facts)


async def test_the_description_says_who_holds_the_log_back_and_since_when(postgres_place, store):
    slow = Slow(postgres_place.replace("?", "?application_name=reports&"))
    began = time.monotonic()
    slow.begin()
    ((pid,),) = slow.connection.rows("SELECT pg_backend_pid()")
    assert HELD not in (await store.describe()).facts  # as every append does, for a moment
    said = await said_when(store)
    assert time.monotonic() - began > 1
    assert said.endswith(f" s for process {pid} of postgres (reports)")
    slow.connection.close()
    assert await said_when(store, held=False) is None


async def test_processes_that_write_one_session_win_each_version_once(
    store, postgres_place, program
):
    follower = store
    names, count = ["a", "b", "c"], 30
    live = asyncio.create_task(take(follower.subscribe(), len(names) * count * 3))
    processes = [program("compete", postgres_place, name, count) for name in names]
    outputs = [await asyncio.to_thread(process.communicate) for process in processes]
    assert [errors for _, errors in outputs] == ["", "", ""]
    async with asyncio.timeout(60):
        delivered = await live
    assert delivered == await gather(follower.read_all(bodies=False))
    won = [int(position) for output, _ in outputs for position in output.split()]
    assert sorted(won) == list(range(len(names) * count))
    for name in ("shared", *names):
        check_chain(await gather(follower.read(name)))


def test_a_forked_process_is_refused_and_leaves_the_parents_connections_alone(postgres_place):
    with faults_program("fork", postgres_place, 2) as forking:
        lines = lines_of(forking)
    assert [line for line in lines if "@" not in line] == ["refused\n"] * 8
    assert len(receipts_in(lines)) == 3


async def test_closing_writes_what_is_queued(postgres_place, opened):
    store = await PostgresStore.open(postgres_place)
    last = store.append("s", [draft()], NO_STREAM)
    for step in range(300):
        last = store.append("s", [draft()], step)
    await store.close()
    assert (await last).receipt.position == 300
    store = await opened(PostgresStore.open(postgres_place))
    assert len(await gather(store.read("s"))) == 301
