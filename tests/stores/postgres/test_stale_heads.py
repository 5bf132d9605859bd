"""What a store knows may be old: another one wrote meanwhile, or an answer was lost.

The server checks the end that an append is chained to. Whoever guessed wrong is told the real end,
and decides again by it. What was stored and not answered is found by its ids, not done twice: the
way to the server is cut after the answer to the commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from eventctx.errors import InvalidSetting, WrongExpectedVersion
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, Address, Last
from eventctx.stores.postgres.batch import Batch
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.errors import DISORDER, Refused
from eventctx.stores.postgres.store import PostgresStore
from eventctx.stores.rules import chain
from eventctx.testing.store_contract.drafts import check_chain, gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.services.postgres_server import Server


@pytest.fixture
def hand(postgres_place, store):
    """A connection of somebody who may do anything at any time."""
    connection = ServerConnection(parse_url(postgres_place))
    yield connection
    connection.close()


def batched(hand, late, position, digest, made=None, name="s"):
    """A record at ``position`` behind ``digest``, for the session "s" or for the one just made."""
    ((stream, kind),) = hand.rows("SELECT stream, type FROM eventctx.records WHERE position = 0")
    batch = Batch(made=made)
    run = batch.run(made[0] if made else stream, name, 0, position, digest)
    batch.add(run, position, [late], [kind], chain(name, digest, position, [late]))
    return batch, run


# What somebody else does to a session of two records, and the number of its records then.
CHANGES = {
    "wrote": (lambda s: s.append("s", [draft("theirs")], 1), 3),
    "wrote several": (lambda s: s.append("s", [draft("theirs"), draft("too")], 1), 4),
    "forked": (lambda s: s.fork("s", 0, "branch", draft()), 2),
    "deleted": (lambda s: s.delete("s", draft("gone"), 1), 3),
    "erased": (lambda s: s.erase({"s": {Address(0): b""}}, {"s": draft("note")}), 3),
}


@pytest.mark.parametrize(("change", "end"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("count", [1, 2])
async def test_an_append_after_somebody_elses_change_is_decided_by_the_real_end(
    store, postgres_place, change, end, count, opened
):
    other = await opened(PostgresStore.open(postgres_place))
    first, second = (await store.append("s", [draft("a"), draft("b")], NO_STREAM)).records
    await change(other)
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
        await other.append("s", [draft("once more")], end - 1)
        head = (await other.head("s")).head
        given = head if expected is None else expected
        done = await store.append("s", [draft("mine") for _ in range(count)], given)
        assert done.receipt.position == head + count
        end = head + count + 1
    seen, theirs = await gather(store.read("s")), await gather(other.read("s"))
    assert seen == theirs
    assert len({record.id for record in seen}) == len(seen)
    at = {record.position: record for record in seen}
    assert all(
        record.digest == chain("s", at[n - 1].digest, n, [record])[0]
        for n, record in at.items()
        if n - 1 in at
    )


async def test_one_record_is_stored_only_behind_the_very_record_that_it_is_chained_to(store, hand):
    done = (await store.append("s", [draft(), draft()], NO_STREAM)).receipt
    for position, digest in ((1, bytes(32)), (0, done.digest), (2, done.digest)):
        batch, run = batched(hand, draft(), position + 1, digest)
        _, found = batch.send(hand)
        assert not found[run].accepted
        assert (found[run].head, found[run].digest) == (1, done.digest)
    assert (await store.head("s")).head == 1


async def test_one_record_of_a_transaction_older_than_the_record_before_begins_again(store, hand):
    await store.append("s", [draft()], NO_STREAM)
    with pytest.raises(Refused) as caught, hand.transaction():
        hand.rows("SELECT pg_current_xact_id()::text")
        before = (await store.append("s", [draft()], 0)).receipt
        batch, _ = batched(hand, draft(), 2, before.digest, made=())
        batch.send(hand)
    assert caught.value.code == DISORDER
    assert (await store.head("s")).head == 1


async def test_an_erasure_that_meets_an_append_still_stores_its_record(store, hand):
    done = await store.append("s", [draft("secret"), draft("stays")], NO_STREAM)
    batch, _ = batched(hand, draft("meanwhile"), 2, done.receipt.digest)
    with hand.transaction():
        batch.send(hand)
        hand.rows("SELECT pos FROM eventctx.records WHERE position = 0 FOR UPDATE")
        erasing = asyncio.ensure_future(store.erase({"s": {Address(0): b""}}, {"s": draft("note")}))
        await asyncio.to_thread(wait_until_somebody_waits, hand, erasing)
    erasure = await erasing
    records = await gather(store.read("s"))
    check_chain(records)
    assert [record.position for record in records] == [0, 1, 2, 3]
    assert erasure.bodies == 1
    assert [record.id for record in erasure.records] == [records[3].id]
    assert records[0].bodies[0].data is None


async def test_a_deletion_waits_for_a_fork_that_is_under_way_and_then_refuses(store, hand):
    done = await store.append("s", [draft(), draft()], NO_STREAM)
    with hand.transaction():
        ((branch,),) = hand.rows(
            "INSERT INTO eventctx.streams(name, parent, forked_at, first, created) "
            "SELECT 'branch', id, 0, 1, 0 FROM eventctx.streams RETURNING id"
        )
        batch, _ = batched(hand, draft(), 1, done.records[0].digest, [branch], "branch")
        batch.send(hand)
        deleting = asyncio.ensure_future(store.delete("s", draft("gone"), 1))
        await asyncio.to_thread(wait_until_somebody_waits, hand, deleting)
        assert not deleting.done(), "it did not wait"
    with pytest.raises(InvalidSetting, match="found 'branch'"):
        await deleting
    assert len(await gather(store.read("branch"))) == 2


def wait_until_somebody_waits(connection, work):
    """Until ``work`` waits for the transaction of ``connection``, or did not and is done."""
    while not work.done() and not connection.rows(
        "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    ):
        time.sleep(0.01)


ONE_RECORD = b"INSERT 0 1\0"
NEW_STREAM = b"SELECT 2\0"
TWO_RECORDS = b"SELECT 1\0"
TRANSACTION = b"COMMIT\0"


@pytest.fixture
async def cut(postgres: Server) -> AsyncIterator[Cut]:
    cut = Cut(postgres.port)
    async with await asyncio.start_server(cut.serve, "127.0.0.1", 0) as server:
        cut.port = server.sockets[0].getsockname()[1]
        yield cut


@pytest.fixture
async def far(postgres: Server, postgres_place: str, cut: Cut):
    """A store behind the cut, which knows the type of the drafts and the stream ``s``."""
    opened = await PostgresStore.open(postgres_place.replace(f":{postgres.port}/", f":{cut.port}/"))
    await opened.append("s", [draft("a")], NO_STREAM)
    yield opened
    assert cut.cuts and cut.until is None, "nothing was cut off"
    await opened.close()


@pytest.mark.parametrize(
    ("until", "stream", "bodies", "expected"),
    [
        (ONE_RECORD, "s", ["b"], 0),
        (ONE_RECORD, "s", ["b"], ANY),
        (TWO_RECORDS, "s", ["b", "cd"], 0),
        (NEW_STREAM, "new", ["a"], NO_STREAM),
        (NEW_STREAM, "new", ["a"], ANY),
    ],
)
async def test_an_append(far, cut, until, stream, bodies, expected):
    cut.until = until
    done = await far.append(stream, [draft(*one) for one in bodies], expected)
    records = await gather(far.read(stream))
    check_chain(records)
    before = 1 if stream == "s" else 0
    assert tuple(records[before:]) == done.records
    assert done.receipt.position == before + len(bodies) - 1


async def test_a_record_that_expects_no_version_and_another_was_next(far, cut, postgres_place):
    other = await PostgresStore.open(postgres_place)
    cut.until = ONE_RECORD
    mine = far.append("s", [draft("mine")], ANY)
    # Between the cut and the retry, the other one's record comes after mine.
    while (await other.head("s")).head == 0:
        pass
    theirs = await other.append("s", [draft("theirs")], ANY)
    assert ((await mine).receipt.position, theirs.receipt.position) == (1, 2)
    records = await gather(far.read("s"))
    assert len(records) == 3
    check_chain(records)
    await other.close()


async def test_a_checkpoint_a_fork_an_erasure_and_a_deletion(far, cut):
    cut.until = ONE_RECORD
    await far.save_checkpoint("log", 5)
    assert (await far.load_checkpoint("log"), cut.cuts) == (5, 1)
    cut.until = TRANSACTION
    done = await far.fork("s", 0, "f", draft("mine"))
    assert ((await gather(far.read("f")))[1:], cut.cuts) == (list(done.records), 2)
    cut.until = TRANSACTION
    erased = await far.erase({"s": {Address(0): b""}}, {"s": draft("note")})
    assert (erased.bodies, len(erased.records), cut.cuts) == (1, 1, 3)
    records = await gather(far.read("s"))
    check_chain(records)
    assert [one.bodies[0].erased for one in records] == [True, False]
    assert await far.scrubbed()
    cut.until = TRANSACTION
    record = await far.delete("f", draft("gone"), 1)
    assert (await gather(far.read("f")), cut.cuts) == ([record], 4)
    assert await far.scrubbed()


class Cut:
    """Forwards connections to a server; the answer that holds ``until`` is lost, with its way."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.port = 0
        self.until: bytes | None = None
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._to)

        async def forward(source, target, *, answers):
            with suppress(ConnectionError, asyncio.CancelledError):
                while data := await source.read(65536):
                    if answers and self.until is not None and self.until in data:
                        self.until = None
                        self.cuts += 1
                        break
                    target.write(data)
                    await target.drain()
            for one in (writer, server_writer):
                one.close()

        await asyncio.gather(
            forward(reader, server_writer, answers=False),
            forward(server_reader, writer, answers=True),
        )
