"""The order of the whole log, whichever tasks and processes write at once.

Transactions commit in another order than they begin. A reader that goes by the position alone
passes what commits after it, and never sees it; so it stops where an older one could still write.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from eventctx.errors import StoreUnavailable
from eventctx.log.store import NO_STREAM
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import check_chain, gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from eventctx.testing.store_contract.ordering import take
from tests.faults.processes import lines_of, receipts_in
from tests.faults.processes import program as faults_program


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


@pytest.fixture
async def slow(store, postgres_place):
    await store.append("slow", [draft()], NO_STREAM)
    return Slow(postgres_place)


async def test_a_subscription_waits_for_an_older_transaction_and_skips_nothing(store, slow):
    await store.append("fast", [draft()], NO_STREAM)
    slow.begin()
    await store.append("fast", [draft()], 0)
    news = store.subscribe()
    found = [await anext(news) for _ in range(2)]
    following = asyncio.ensure_future(anext(news))
    await asyncio.sleep(0.3)
    assert not following.done(), "it went past what is not settled"
    slow.append_and_commit()
    async with asyncio.timeout(60):
        found += [await following, await anext(news)]
    assert [(r.stream, r.position) for r in found] == [
        *[("slow", 0), ("fast", 0)],
        *[("slow", 1), ("fast", 1)],
    ]
    await news.aclose()


async def test_a_read_of_everything_waits_for_what_was_committed_before_it(store, slow):
    slow.begin()
    await store.append("fast", [draft()], NO_STREAM)
    reading = asyncio.create_task(gather(store.read_all()))
    await asyncio.sleep(0.2)
    assert not reading.done()
    slow.append_and_commit()
    async with asyncio.timeout(60):
        found = await reading
    assert [(r.stream, r.position) for r in found] == [("slow", 0), ("slow", 1), ("fast", 0)]


async def test_a_transaction_that_does_not_end_is_named(slow, postgres_place):
    store = await PostgresStore.open(postgres_place, patience=0.3)
    slow.begin()
    await store.append("fast", [draft()], NO_STREAM)
    with pytest.raises(StoreUnavailable, match=r"process \d+ of postgres \(eventctx\)"):
        await gather(store.read_all())
    slow.append_and_commit()
    assert len(await gather(store.read_all())) == 3
    await store.close()


async def test_a_stream_is_followed_in_its_own_order_and_waits_for_nobody(store, slow):
    slow.begin()
    await store.append("fast", [draft()], NO_STREAM)
    async with asyncio.timeout(60):
        assert (await take(store.subscribe(stream="fast"), 1))[0].position == 0
    slow.append_and_commit()


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
    slow.begin()
    began = time.monotonic()
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
    won = [int(position) for output, _ in outputs for position in output.split("\n")[0].split()]
    assert sorted(won) == list(range(len(names) * count))
    for name in ("shared", *names):
        check_chain(await gather(follower.read(name)))


def test_a_forked_process_is_refused_and_leaves_the_parents_connections_alone(postgres_place):
    with faults_program("fork", postgres_place, 2) as forking:
        lines = lines_of(forking)
    assert [line for line in lines if "@" not in line] == ["refused\n"] * 8
    assert len(receipts_in(lines)) == 3


async def test_closing_writes_what_is_queued(postgres_place):
    store = await PostgresStore.open(postgres_place)
    last = store.append("s", [draft()], NO_STREAM)
    for step in range(300):
        last = store.append("s", [draft()], step)
    await store.close()
    assert (await last).receipt.position == 300
    store = await PostgresStore.open(postgres_place)
    assert len(await gather(store.read("s"))) == 301
    await store.close()
