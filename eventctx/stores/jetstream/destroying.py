"""Removes the bytes of erased and deleted messages from the files of every server.

A shard's ``x`` messages are the orders: they name the messages to destroy, and are stored in one
batch with the erasure. So an erasure that a process did not finish is finished by the next process
that opens the store. Two places hold the bytes:

- The messages. They are deleted one by one, with the option that overwrites their bytes.
- The Raft logs of the replicas: they hold everything since their last snapshot. A server takes one
  when its log has grown by 8 MiB, or after minutes. So the log is filled up, and every server's
  monitoring is asked whether its log begins after the deleted messages.

Only then the ``x`` message is deleted, and the store counts as scrubbed.

Invariant: the ledger of a shard (``d``) counts a deletion in the batch that orders it, before the
first message is deleted. A reader takes every gap above that count for a loss (``verifying``); a
count that is too high for a while only hides a loss, while one too low would accuse a sound server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from eventctx.errors import EventctxError, StoreUnavailable
from eventctx.stores.jetstream.connection import (
    DOUBTS,
    EXPECTED,
    ApiError,
    Outgoing,
    ServerLink,
    Tries,
    outgoing,
    send,
)
from eventctx.stores.jetstream.layout import (
    DeletionLedger,
    ToDestroy,
    decode_ledger,
    decode_to_destroy,
    encode,
    token,
)
from eventctx.stores.jetstream.requirements import Servers
from eventctx.stores.jetstream.retrying_reads import RetryingReads

_log = logging.getLogger("eventctx.stores")

SEQUENCES: Final = 10_000
"""Most sequences in one ``x`` message."""

WAIT_SECONDS: Final = 30.0
"""How long an erasure waits for the servers' files: a message takes them some 10 ms."""

AGAIN_SECONDS: Final = 30.0

_DELETES: Final = 128
_FILL_BYTES: Final = 10 * 2**20
_FILLER_BYTES: Final = 900_000
_ROUNDS: Final = 2
_COMPACTION_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05


DropSnapshots = Callable[[Sequence[str]], Awaitable[int]]
"""Destroys the snapshots of these sessions and their forks, and returns their number."""


class Count(NamedTuple):
    """The ledger of a shard, and where its last entry lies."""

    total: int
    sequence: int


class Destroyer:
    """Writes orders of destruction and carries them out; for the store's loop."""

    def __init__(
        self,
        link: ServerLink,
        reads: RetryingReads,
        servers: Servers,
        drop_snapshots: DropSnapshots,
    ) -> None:
        self._link = link
        self._names = link.names
        self._reads = reads
        self._servers = servers
        self._drop_snapshots = drop_snapshots
        self._lock = asyncio.Lock()
        self._later: asyncio.Task[Any] | None = None

    async def count(self, shard: int) -> Count:
        """Read the ledger of a shard from its leader."""
        last = await self._reads.last(shard, self._names.of_shard("d", shard))
        return Count(0, 0) if last is None else Count(decode_ledger(last.data).total, last.sequence)

    def orders(
        self, shard: int, count: Count, orders: Sequence[ToDestroy], messages: int
    ) -> list[Outgoing]:
        """The messages that order and count the destruction of ``messages`` messages.

        A batch with them fails when the ledger has changed since ``count`` was read.
        """
        # The orders are deleted at the end, too, so they count as well.
        total = count.total + messages + len(orders)
        ledger = outgoing(
            self._names.of_shard("d", shard),
            {EXPECTED: str(count.sequence)},
            encode(DeletionLedger(total)),
        )
        subject = self._names.of_shard("x", shard)
        return [*(outgoing(subject, {}, encode(order)) for order in orders), ledger]

    async def waste(self, session: str, sequences: list[int]) -> None:
        """Destroy messages of a session that no unit names."""
        if not sequences:
            return
        shard = self._names.shard(session)
        await self._store(shard, orders_of(sequences), len(sequences))
        await self.carry_out(shard)

    async def _store(self, shard: int, orders: Sequence[ToDestroy], messages: int) -> None:
        tries = Tries(self._link, "destroying")
        while True:
            count = await self.count(shard)
            try:
                await send(self._link, self.orders(shard, count, orders, messages))
                return
            except DOUBTS as error:
                await tries.after(error)  # an order that is stored twice does no harm
            except ApiError as error:
                if not error.conflict and not error.passing:
                    raise self._link.translate(error, "destroying") from error
                await tries.after(error)

    async def carry_out(self, shard: int) -> bool:
        """Carry out a shard's orders; true if none is left.

        Continues in the background if it takes long; what fails now, because a server is down, is
        tried again later. If the store is closed before, the next process to open it does the rest.
        """
        working = self._link.keep(self._attempt(shard))
        await asyncio.wait({working}, timeout=WAIT_SECONDS)
        return working.done() and working.result()

    async def _attempt(self, shard: int) -> bool:
        async with self._lock:
            try:
                done = await self._carry_out_orders(shard)
            except EventctxError as error:
                _log.warning("%s: what was erased is not gone from every server's files yet: %s",
                             self._link.address.place, error)  # fmt: skip
                done = False
        if not done and (self._later is None or self._later.done()):
            self._later = self._link.keep(self._again())
        return done

    async def _again(self) -> None:
        left = True
        while left:
            await asyncio.sleep(AGAIN_SECONDS)
            async with self._lock:
                try:
                    shards = range(self._names.shards)
                    left = not all([await self._carry_out_orders(shard) for shard in shards])
                except EventctxError:
                    continue

    async def open_orders(self, shard: int) -> list[tuple[int, ToDestroy]]:
        """The open orders of a shard, with their sequences."""
        found = []
        subject, sequence = self._names.of_shard("x", shard), 1
        while (message := await self._reads.next(shard, subject, sequence)) is not None:
            found.append((message.sequence, decode_to_destroy(message.data)))
            sequence = message.sequence + 1
        return found

    async def _carry_out_orders(self, shard: int) -> bool:
        orders = await self.open_orders(shard)
        if not orders:
            return True
        stream = self._names.stream(shard)
        for sequence, order in orders:
            await self._delete(stream, order.sequences)
            if order.session is not None:
                await self._delete_session(shard, order.session, sequence)
        snapshots = sorted({name for _, order in orders for name in order.snapshots})
        dropped = await self._drop_snapshots(snapshots) if snapshots else 0
        if not await self._compact_shard(shard):
            return False
        if dropped and not await self._compact_caches():
            return False
        for sequence, _ in orders:
            await self._delete(stream, (sequence,))
        return True

    async def _delete(self, stream: str, sequences: Iterable[int]) -> None:
        """Overwrite and delete messages, some at a time; a message that is gone is no error."""
        some = asyncio.Semaphore(_DELETES)

        async def delete(sequence: int) -> None:
            async with some:
                await self._link.destroy(stream, sequence)

        await asyncio.gather(*(delete(sequence) for sequence in sequences))

    async def _delete_session(self, shard: int, session: str, before: int) -> None:
        """Delete the messages of a session with a sequence below ``before``."""
        stream = self._names.stream(shard)
        for kind in "rbpe":
            subject = f"{self._names.prefix}.{shard}.{kind}.{token(session)}"
            while True:
                page = await self._reads.page(shard, subject, 1)
                found = [one.sequence for one in page.messages if one.sequence < before]
                if not found:
                    # A replica may lag; the leader does not.
                    left = await self._reads.next(shard, subject, 1)
                    if left is None or left.sequence >= before:
                        break
                    found = [left.sequence]
                await self._delete(stream, found)

    async def _compact_shard(self, shard: int) -> bool:
        """Make every replica drop its Raft log of the shard; true if all did."""
        stream, subject = self._names.stream(shard), self._names.of_shard("t", shard)

        async def fill() -> None:
            size, fillers = self._fillers()
            await self._store(shard, (), fillers)  # counted first: each is deleted again
            await self._fill(stream, subject, size, fillers)

        return await self._compact(stream, fill)

    async def _compact_caches(self) -> bool:
        subject = f"{self._names.prefix}.kv.t"

        async def fill() -> None:
            await self._fill(self._names.caches, subject, *self._fillers())

        return await self._compact(self._names.caches, fill)

    def _fillers(self) -> tuple[int, int]:
        """The size of a filler, and how many make a Raft log long enough."""
        size = min(self._link.client.max_payload - 1024, _FILLER_BYTES)
        return size, -(-_FILL_BYTES // size)

    async def _fill(self, stream: str, subject: str, size: int, fillers: int) -> None:
        # Each is deleted at once. A roll-up would do that too, but where it is allowed, every
        # client that may append could remove a session with it.
        for _ in range(fillers):
            try:
                # Random bytes, since a server may compress.
                stored = await self._link.request(subject, os.urandom(size))
                await self._link.destroy(stream, stored["seq"])
            except ApiError as error:
                raise self._link.translate(error, "compacting") from error

    async def _compact(self, stream: str, fill: Callable[[], Awaitable[None]]) -> bool:
        """Fill the Raft logs of a stream until each begins after its former end; true if all do."""
        # Marked before the filling, so nothing that a log held until now is left at the end.
        marks = await self._logs(stream)
        for _ in range(_ROUNDS):
            await fill()
            until = self._link.loop.time() + _COMPACTION_SECONDS
            while self._link.loop.time() < until:
                now = await self._logs(stream)
                if all(
                    name in now and (now[name][0] > last or now[name][2] == 0)
                    for name, (_, last, _) in marks.items()
                ):
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def _logs(self, stream: str) -> dict[str, tuple[int, int, int]]:
        """First, last and number of entries of every replica's Raft log of a stream.

        Raises StoreUnavailable when one of them cannot be seen.
        """
        status = await self._link.request(f"$JS.API.STREAM.INFO.{stream}")
        cluster = status["cluster"]
        replicas = {cluster["leader"], *(one["name"] for one in cluster.get("replicas", ()))}
        group = cluster["raft_group"]
        user = await self._link.request("$SYS.REQ.USER.INFO")
        answers = await self._servers.ask("raftz", acc=user["data"]["account"], group=group)
        found = {}
        for name in replicas:
            for account in answers.get(name, {}).values():
                wal = account.get(group, {}).get("wal")
                if wal is not None:
                    found[name] = (wal["first_seq"], wal["last_seq"], wal["messages"])
        if set(found) != replicas:
            missing = ", ".join(sorted(replicas - set(found)))
            raise StoreUnavailable(
                f"{self._link.address.place}: expected to see the Raft logs of {stream} on every "
                f"server, found none of {missing}; it is tried again"
            )
        return found

    async def scrubbed(self) -> bool:
        """Whether every shard has carried out its orders."""
        for shard in range(self._names.shards):
            subject = self._names.of_shard("x", shard)
            if await self._reads.last(shard, subject) is not None:
                return False
        return True


def orders_of(sequences: Sequence[int]) -> list[ToDestroy]:
    return [
        ToDestroy(tuple(sequences[start : start + SEQUENCES]))
        for start in range(0, len(sequences), SEQUENCES)
    ]
