"""The order of the whole log: a reader stops where an older transaction could still write.

Transactions commit in another order than they begin. A reader that goes by the position alone
passes what commits after it, and never sees it.
"""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from eventctx.errors import StoreUnavailable
from eventctx.log.store import ANY, NO_STREAM
from eventctx.stores.postgres.batch import Batch
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.encoding import INT8, int8
from eventctx.stores.postgres.errors import DISORDER, Refused
from eventctx.stores.postgres.store import PostgresStore
from eventctx.stores.rules import chain


@pytest.fixture
async def store(postgres_place):
    opened = await PostgresStore.open(postgres_place)
    yield opened
    await opened.close()


class Slow:
    """Another process, in a transaction that it does not commit yet."""

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


class NaiveReader:
    """Reads by position alone: what our reader is without its fence."""

    def __init__(self, place):
        self.connection = ServerConnection(parse_url(place))
        self.last = -1
        self.seen = []

    def read(self):
        rows = self.connection.rows(
            "SELECT r.pos, s.name, r.position FROM eventctx.records r JOIN eventctx.streams s "
            "ON s.id = r.stream WHERE r.pos > $1 ORDER BY r.pos",
            (INT8,),
            (int8(self.last),),
        )
        for self.last, stream, position in rows:
            self.seen.append((stream, position))


async def test_a_subscription_waits_for_an_older_transaction_and_skips_nothing(
    store, draft, postgres_place
):
    await store.append("slow", [draft()], NO_STREAM)
    await store.append("fast", [draft()], NO_STREAM)
    slow, naive = Slow(postgres_place), NaiveReader(postgres_place)
    slow.begin()
    await store.append("fast", [draft()], 0)
    seen = []
    settled = asyncio.Event()

    async def follow():
        async for record in store.subscribe():
            seen.append((record.stream, record.position))
            if len(seen) == 2:
                settled.set()
            if len(seen) == 4:
                return

    following = asyncio.create_task(follow())
    naive.read()
    await settled.wait()
    await asyncio.sleep(0.3)
    assert seen == [("slow", 0), ("fast", 0)], "it went past what is not settled"
    slow.append_and_commit()
    async with asyncio.timeout(60):
        await following
    naive.read()
    assert seen == [("slow", 0), ("fast", 0), ("slow", 1), ("fast", 1)]
    assert naive.seen == [("slow", 0), ("fast", 0), ("fast", 1)], "a naive reader skips a record"
    naive.connection.close()


async def test_a_read_of_everything_waits_for_what_was_committed_before_it(
    store, draft, collect, postgres_place
):
    await store.append("slow", [draft()], NO_STREAM)
    slow = Slow(postgres_place)
    slow.begin()
    await store.append("fast", [draft()], NO_STREAM)
    reading = asyncio.create_task(collect(store.read_all()))
    await asyncio.sleep(0.2)
    assert not reading.done()
    slow.append_and_commit()
    async with asyncio.timeout(60):
        found = await reading
    assert [(r.stream, r.position) for r in found] == [("slow", 0), ("slow", 1), ("fast", 0)]


async def test_a_transaction_that_does_not_end_is_named(draft, collect, postgres_place):
    store = await PostgresStore.open(postgres_place, patience=0.3)
    await store.append("slow", [draft()], NO_STREAM)
    slow = Slow(postgres_place)
    slow.begin()
    await store.append("fast", [draft()], NO_STREAM)
    with pytest.raises(StoreUnavailable, match=r"process \d+ of postgres \(eventctx\)"):
        await collect(store.read_all())
    slow.append_and_commit()
    assert len(await collect(store.read_all())) == 3
    await store.close()


async def test_a_stream_is_followed_in_its_own_order_and_waits_for_nobody(
    store, draft, postgres_place
):
    await store.append("slow", [draft()], NO_STREAM)
    slow = Slow(postgres_place)
    slow.begin()
    await store.append("fast", [draft()], NO_STREAM)
    async with asyncio.timeout(60):
        async for record in store.subscribe(stream="fast"):
            assert record.position == 0
            break
    slow.append_and_commit()


async def test_the_records_of_a_stream_rise_in_the_order_of_the_log_too(
    draft, collect, postgres_place
):
    stores = [await PostgresStore.open(postgres_place) for _ in range(4)]

    async def write(number, store):
        for _ in range(40):
            acks = [store.append(f"s{n}", [draft()], ANY) for n in (0, 1, 2, 3)]
            for ack in acks if number % 2 else acks[::-1]:
                await ack

    await asyncio.gather(*(write(n, store) for n, store in enumerate(stores)))
    found = await collect(stores[0].read_all(bodies=False))
    assert len(found) == 4 * 40 * 4
    for n in range(4):
        assert [r.position for r in found if r.stream == f"s{n}"] == list(range(160))
    for store in stores:
        await store.close()


async def test_a_transaction_that_is_older_than_the_record_before_its_own_begins_again(
    store, draft, postgres_place
):
    done = await store.append("slow", [draft()], NO_STREAM)
    slow = Slow(postgres_place)
    slow.begin()
    before = (await store.append("slow", [draft()], 0)).receipt
    ((stream, kind),) = slow.connection.rows(
        "SELECT r.stream, r.type FROM eventctx.records r WHERE r.position = 0"
    )
    batch, late = Batch(made=[0]), draft()
    run = batch.run(stream, "slow", 0, 2, before.digest)
    batch.add(run, 2, [late], [kind], chain("slow", before.digest, 2, [late]))
    with pytest.raises(Refused) as caught:
        batch.send(slow.connection)
    assert caught.value.code == DISORDER
    slow.connection.close()
    assert (await store.head("slow")).head == done.receipt.position + 1


async def test_a_notification_comes_only_while_somebody_listens(store, draft, postgres_place):
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


def test_a_restored_store_goes_on_behind_what_it_holds(postgres_place, draft):
    async def fill():
        store = await PostgresStore.open(postgres_place)
        done = await store.append("s", [draft(), draft()], NO_STREAM)
        await store.close()
        return done

    async def go_on():
        store = await PostgresStore.open(postgres_place)
        done = await store.append("s", [draft()], 1)
        found = [r async for r in store.read_all()]
        await store.close()
        return done, found

    asyncio.run(fill())
    connection = ServerConnection(parse_url(postgres_place))
    # As a dump of a server whose transactions had come much further.
    connection.rows("UPDATE eventctx.records SET pos = pos + (1::bigint << 50)")
    done, found = asyncio.run(go_on())
    assert [r.position for r in found] == [0, 1, 2]
    assert found[2].global_position > found[1].global_position > 1 << 50
    assert found[2] == done.records[0]
    connection.close()


HELD = "readers of the whole log wait"


async def said_when(store, *, held=True):
    """The description's line on the fence, once it is there; or once it is gone."""
    for _ in range(400):
        facts = (await store.describe()).facts
        if (HELD in facts) == held:
            return facts.get(HELD)
        await asyncio.sleep(0.05)
    raise TimeoutError(facts)


async def test_the_description_says_who_holds_the_log_back_and_since_when(
    postgres_place, store, draft
):
    slow = Slow(postgres_place.replace("?", "?application_name=reports&"))
    slow.begin()
    began = time.monotonic()
    ((pid,),) = slow.connection.rows("SELECT pg_backend_pid()")
    assert HELD not in (await store.describe()).facts  # as every append does, for a moment
    said = await said_when(store)
    assert time.monotonic() - began > 1
    assert said.endswith(f" s for process {pid} of postgres (reports)")
    slow.connection.close()
    assert await said_when(store, held=False) is None


async def test_a_role_that_may_not_see_it_learns_it_from_what_waits(
    postgres, postgres_place, store, draft
):
    schema = postgres_place.rpartition("=")[2]
    postgres.execute("CREATE ROLE watching LOGIN")
    postgres.execute(f"GRANT USAGE ON SCHEMA {schema} TO watching")
    postgres.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO watching")
    postgres.execute("GRANT postgres TO watching")  # whose tenant's sessions it sees
    postgres.execute("CREATE ROLE busy LOGIN SUPERUSER")
    slow = Slow(postgres.url(user="busy", schema=schema))
    slow.begin()
    ((pid,),) = slow.connection.rows("SELECT pg_backend_pid()")
    await store.append("s", [draft("a")], NO_STREAM)
    place = postgres.url(user="watching", schema=schema)
    watching = await PostgresStore.open(place, read_only=True)
    assert f" s for process {pid} of busy" in await said_when(watching)
    with psycopg.connect(place.partition("?")[0]) as connection:
        ((since,),) = connection.execute(
            "SELECT xact_start FROM pg_stat_activity WHERE pid = %s", (pid,)
        ).fetchall()
        assert since is None
    await watching.close()
    slow.connection.close()
    postgres.execute("DROP OWNED BY watching")
    postgres.execute("DROP ROLE watching, busy")
