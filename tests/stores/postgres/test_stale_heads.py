"""What a store knows of a session's end may be old: another one wrote meanwhile.

The server checks the end that an append is chained to. Whoever guessed wrong is told the real end,
and decides again by it; nothing is stored after a wrong one, and nothing is lost in silence.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from eventctx.errors import InvalidSetting, WrongExpectedVersion
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, Address, Last
from eventctx.stores.postgres.batch import Batch
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.encoding import INT8, int8
from eventctx.stores.postgres.errors import DISORDER, Refused
from eventctx.stores.postgres.store import PostgresStore
from eventctx.stores.rules import chain


@pytest.fixture
async def stores(postgres_place):
    """Two processes' stores in one schema; the first one's knowledge will be old."""
    opened = [await PostgresStore.open(postgres_place) for _ in range(2)]
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def hand(postgres_place, stores):
    """A connection of somebody who may do anything at any time."""
    connection = ServerConnection(parse_url(postgres_place))
    yield connection
    connection.close()


async def wrote(other, draft):
    await other.append("s", [draft("theirs")], 1)
    return 3


async def wrote_several(other, draft):
    await other.append("s", [draft("theirs"), draft("theirs too")], 1)
    return 4


async def forked(other, draft):
    await other.fork("s", 0, "branch", draft())
    return 2


async def deleted(other, draft):
    await other.delete("s", draft("gone"), 1)
    return 3


async def erased(other, draft):
    await other.erase({"s": {Address(0): b""}}, {"s": draft("note")})
    return 3


@pytest.mark.parametrize("change", [wrote, wrote_several, forked, deleted, erased])
@pytest.mark.parametrize("count", [1, 2])
async def test_an_append_after_somebody_elses_change_is_decided_by_the_real_end(
    stores, draft, collect, change, count
):
    store, other = stores
    first, second = (await store.append("s", [draft("a"), draft("b")], NO_STREAM)).records
    end = await change(other, draft)
    moved = end > 2
    drafts = [draft("mine") for _ in range(count)]
    for expected in (1, Last(1, second.id)) if moved else ():
        with pytest.raises(WrongExpectedVersion) as raised:
            await store.append("s", drafts, expected)
        assert raised.value.actual == end - 1
    for expected in (NO_STREAM, 0, end, Last(0, first.id)):
        with pytest.raises(WrongExpectedVersion):
            await store.append("s", drafts, expected)
    assert (await other.head("s")).head == end - 1, "a refused append was stored"
    for expected in (ANY, STREAM_EXISTS, None):
        await change_again(other, draft, end)
        head = (await other.head("s")).head
        given = head if expected is None else expected
        done = await store.append("s", [draft("mine") for _ in range(count)], given)
        assert done.receipt.position == head + count
        end = head + count + 1
    seen, theirs = await collect(store.read("s")), await collect(other.read("s"))
    assert seen == theirs
    assert len({record.id for record in seen}) == len(seen)
    at = {record.position: record for record in seen}
    assert all(
        record.digest == chain("s", at[n - 1].digest, n, [record])[0]
        for n, record in at.items()
        if n - 1 in at
    )


async def change_again(other, draft, end):
    """Another record that the first store does not know of."""
    await other.append("s", [draft("once more")], end - 1)


async def test_one_record_is_stored_only_behind_the_very_record_that_it_is_chained_to(
    stores, hand, draft
):
    store, _ = stores
    done = (await store.append("s", [draft(), draft()], NO_STREAM)).receipt
    ((stream, kind),) = hand.rows("SELECT stream, type FROM eventctx.records WHERE position = 0")
    for position, digest in ((1, bytes(32)), (0, done.digest), (2, done.digest)):
        late = draft()
        batch = Batch()
        run = batch.run(stream, "s", 0, position + 1, digest)
        batch.add(run, position + 1, [late], [kind], chain("s", digest, position + 1, [late]))
        _, found = batch.send(hand)
        assert not found[run].accepted
        assert (found[run].head, found[run].digest) == (1, done.digest)
    assert (await store.head("s")).head == 1


async def test_one_record_of_a_transaction_older_than_the_record_before_begins_again(
    stores, hand, draft
):
    store, _ = stores
    await store.append("s", [draft()], NO_STREAM)
    ((stream, kind),) = hand.rows("SELECT stream, type FROM eventctx.records WHERE position = 0")
    late = draft()
    with pytest.raises(Refused) as caught, hand.transaction():
        hand.rows("SELECT pg_current_xact_id()::text")
        before = (await store.append("s", [draft()], 0)).receipt
        batch = Batch(made=())
        run = batch.run(stream, "s", 0, 2, before.digest)
        batch.add(run, 2, [late], [kind], chain("s", before.digest, 2, [late]))
        batch.send(hand)
    assert caught.value.code == DISORDER
    assert (await store.head("s")).head == 1


async def test_an_erasure_that_meets_an_append_still_stores_its_record(
    stores, hand, draft, collect, chained
):
    store, _ = stores
    done = await store.append("s", [draft("secret"), draft("stays")], NO_STREAM)
    ((stream, kind),) = hand.rows("SELECT stream, type FROM eventctx.records WHERE position = 0")
    meanwhile = draft("meanwhile")
    batch = Batch()
    run = batch.run(stream, "s", 0, 2, done.receipt.digest)
    batch.add(run, 2, [meanwhile], [kind], chain("s", done.receipt.digest, 2, [meanwhile]))
    with hand.transaction():
        batch.send(hand)
        hand.rows("SELECT pos FROM eventctx.records WHERE position = 0 FOR UPDATE")
        erasing = asyncio.ensure_future(store.erase({"s": {Address(0): b""}}, {"s": draft("note")}))
        await asyncio.to_thread(wait_until_somebody_waits, hand, erasing)
    erasure = await erasing
    records = await collect(store.read("s"))
    chained(records)
    assert [record.position for record in records] == [0, 1, 2, 3]
    assert erasure.bodies == 1
    assert [record.id for record in erasure.records] == [records[3].id]
    assert records[0].bodies[0].data is None


async def test_a_deletion_waits_for_a_fork_that_is_under_way_and_then_refuses(
    stores, hand, draft, collect
):
    store, _ = stores
    done = await store.append("s", [draft(), draft()], NO_STREAM)
    ((stream, kind),) = hand.rows("SELECT stream, type FROM eventctx.records WHERE position = 0")
    first, digest = draft(), done.records[0].digest
    with hand.transaction():
        ((branch,),) = hand.rows(
            "INSERT INTO eventctx.streams(name, parent, forked_at, first, created) "
            "VALUES('branch', $1, 0, 1, 0) RETURNING id",
            (INT8,),
            (int8(stream),),
        )
        batch = Batch(made=[branch])
        run = batch.run(branch, "branch", 0, 1, digest)
        batch.add(run, 1, [first], [kind], chain("branch", digest, 1, [first]))
        batch.send(hand)
        deleting = asyncio.ensure_future(store.delete("s", draft("gone"), 1))
        await asyncio.to_thread(wait_until_somebody_waits, hand, deleting)
        assert not deleting.done(), "it did not wait"
    with pytest.raises(InvalidSetting, match="found 'branch'"):
        await deleting
    assert len(await collect(store.read("branch"))) == 2


def wait_until_somebody_waits(connection, work):
    """Until ``work`` waits for the transaction of ``connection``, or did not and is done."""
    while not work.done() and not connection.rows(
        "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    ):
        time.sleep(0.01)
