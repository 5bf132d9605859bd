"""Forks and deletions. Both write the session's family, so that of two at once one is refused.

A fork in the shard of its parent is one batch. For a fork in another shard the entry in the
parent's family is stored first; an entry without a fork, of a process that ended in between, keeps
the parent from being deleted until a fork of that name is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from eventctx.errors import InvalidSetting, StreamExists
from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended, StreamInfo
from eventctx.stores.jetstream.append import (
    UnitAppend,
    append_result,
    pack,
    records_of,
    registry_entry,
)
from eventctx.stores.jetstream.connection import (
    DOUBTS,
    EXPECTED,
    EXPECTED_SUBJECT,
    ApiError,
    Outgoing,
    ServerLink,
    Tries,
    outgoing,
    send,
)
from eventctx.stores.jetstream.destroying import Destroyer
from eventctx.stores.jetstream.layout import Relative, SessionOrigin, ToDestroy, encode, token
from eventctx.stores.jetstream.owners import existing
from eventctx.stores.jetstream.reading import SessionReader, Verified
from eventctx.stores.jetstream.writer import JetStreamWriter
from eventctx.stores.rules import chain, conflict, has_forks

_KINDS: Final = "rbpe"
"""The messages of a session that its deletion destroys; its family stays."""


class Forks(Protocol):
    """Lists the forks of a session."""

    async def forks(self, session: str) -> list[str]:
        """The forks of the session itself, without deleted ones."""
        ...


class Families:
    """Forks and deletes sessions; for the store's loop."""

    def __init__(
        self,
        link: ServerLink,
        reader: SessionReader,
        writer: JetStreamWriter,
        destroyer: Destroyer,
        forks: Forks,
    ) -> None:
        self._link = link
        self._names = link.names
        self._reader = reader
        self._writer = writer
        self._destroyer = destroyer
        self._forks = forks

    async def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        async with self._writer.exclusive((stream, new)) as forget:
            tries = Tries(self._link, f"fork of {stream!r}")
            try:
                while True:
                    done, error = await self._try_fork(stream, at, new, first)
                    if done is not None:
                        return done
                    await tries.after(error)
            finally:
                forget(new)

    async def _try_fork(
        self, stream: str, at: int, new: str, first: Draft
    ) -> tuple[Appended | None, Exception]:
        family = await self._family(stream)
        parent = await existing(self._reader.heads, stream)
        made = await self._reader.verified_head(new)
        if made is not None:
            return await self._made_before(stream, at, new, first, made), Exception()
        begins = parent.unit.first if parent.deleted else 0
        if not begins <= at <= parent.position:
            raise InvalidSetting(
                f"fork of {stream!r}: expected a position from {begins} to {parent.position}, "
                f"found {at}"
            )
        scan = await self._reader.scan(stream, start=at, stop=at, bodies=False)
        (origin,) = await scan.page()
        digests = chain(new, origin.digest, at + 1, (first,))
        place = UnitAppend(new, at + 1, (first,), digests, SessionOrigin(first.time, stream, at))
        packed = pack(self._names, place, self._link.client.max_payload)
        if not packed.fits:
            raise InvalidSetting(
                f"fork of {stream!r}: expected a first record that fits into one batch, found "
                f"{len(packed.messages)} messages of {packed.size:,} bytes; append the rest to it"
            )
        packed.messages[0].headers[EXPECTED] = "0"
        messages = packed.messages
        messages.append(registry_entry(self._names, new, place.origin or SessionOrigin(first.time)))
        relative = self._relative(stream, Relative(new, at), family)
        try:
            if self._names.shard(stream) == self._names.shard(new):
                messages.append(relative)
            else:
                await send(self._link, [relative])
            begins = await send(self._link, messages)
        except (ApiError, *DOUBTS) as error:
            return None, self._passing(error, f"fork of {stream!r}")
        return append_result(new, records_of(self._names, place, packed.units, begins)), Exception()

    async def _made_before(
        self, stream: str, at: int, new: str, first: Draft, made: Verified
    ) -> Appended:
        """The first record of a fork that was made by an earlier try. Raises StreamExists."""
        if (made.origin.parent, made.origin.forked_at) == (stream, at):
            found = await self._reader.records(new, at + 1, at + 1)
            if [record.id for record in found] == [first.id]:
                return append_result(new, tuple(found))
        raise StreamExists(new)

    async def delete(self, stream: str, last: Draft, expected: int) -> Record:
        async with self._writer.exclusive((stream,)) as forget:
            tries = Tries(self._link, f"deletion of {stream!r}")
            try:
                while True:
                    record, error = await self._try_delete(stream, last, expected)
                    if record is not None:
                        break
                    await tries.after(error)
            finally:
                forget(stream)
                self._reader.owners.forget(stream)
                self._reader.positions.forget(stream)
        await self._destroyer.carry_out(self._names.shard(stream))
        return record

    async def _try_delete(
        self, stream: str, last: Draft, expected: int
    ) -> tuple[Record | None, Exception]:
        family = await self._family(stream)
        head = await existing(self._reader.heads, stream)
        if head.deleted and head.event == last.id:
            (record,) = await self._reader.records(stream, head.position, head.position)
            return record, Exception()
        if head.position != expected:
            raise conflict(stream, expected, head.position)
        forks = await self._forks.forks(stream)
        if forks:
            raise has_forks(stream, forks)
        beginning = await self._reader.owners.beginning(stream, head)
        origin = SessionOrigin(beginning.origin.created)
        digests = chain(stream, head.digest, expected + 1, (last,))
        place = UnitAppend(stream, expected + 1, (last,), digests, origin, deleted=True)
        packed = pack(self._names, place, self._link.client.max_payload)
        packed.messages[0].headers[EXPECTED] = str(head.sequence)
        shard = self._names.shard(stream)
        own = head.position - beginning.first + 1
        orders, count = await self._orders(shard, stream)
        order, *ledger = orders
        messages = [
            order,
            *packed.messages,
            *ledger,
            registry_entry(self._names, stream, origin, deleted=True, records=own),
            self._relative(stream, Relative(None), family),
        ]
        # The batch fails if somebody adds an erasure or early bodies meanwhile: they would be
        # destroyed without being counted in the ledger, and look like a loss.
        await self._guard(order, shard, stream, "e")
        await self._guard(messages[-2], shard, stream, "p")
        if count != await self._count(shard, stream):
            return None, Exception("it changes")
        try:
            begins = await send(self._link, messages)
        except (ApiError, *DOUBTS) as error:
            return None, self._passing(error, f"deletion of {stream!r}")
        return records_of(self._names, place, packed.units, begins + 1)[0], Exception()

    async def set_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> Record:
        async with self._writer.exclusive((info.stream,)) as forget:
            tries = Tries(self._link, f"mark of the deletion of {info.stream!r}")
            try:
                while True:
                    record, error = await self._try_tombstone(info, last, previous, records)
                    if record is not None:
                        return record
                    await tries.after(error)
            finally:
                forget(info.stream)

    async def _try_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> tuple[Record | None, Exception]:
        made = await self._reader.verified_head(info.stream)
        if made is not None:
            if not made.deleted or made.event != last.id:
                raise StreamExists(info.stream)
            (record,) = await self._reader.records(info.stream, info.head, info.head)
            return record, Exception()
        digests = chain(info.stream, previous, info.head, (last,))
        origin = SessionOrigin(info.created)
        place = UnitAppend(info.stream, info.head, (last,), digests, origin, deleted=True)
        packed = pack(self._names, place, self._link.client.max_payload)
        packed.messages[0].headers[EXPECTED] = "0"
        messages = [
            *packed.messages,
            registry_entry(self._names, info.stream, origin),
            registry_entry(self._names, info.stream, origin, deleted=True, records=records),
        ]
        try:
            begins = await send(self._link, messages)
        except (ApiError, *DOUBTS) as error:
            return None, self._passing(error, f"mark of the deletion of {info.stream!r}")
        return records_of(self._names, place, packed.units, begins)[0], Exception()

    async def _orders(self, shard: int, stream: str) -> tuple[Sequence[Outgoing], int]:
        counted = await self._count(shard, stream)
        ledger = await self._destroyer.count(shard)
        order = ToDestroy(session=stream, snapshots=(stream,))
        return self._destroyer.orders(shard, ledger, [order], counted), counted

    async def _count(self, shard: int, stream: str) -> int:
        """How many messages the deletion of a session destroys."""
        subject = f"{self._names.prefix}.{shard}.*.{token(stream)}"
        status = await self._link.request(
            f"$JS.API.STREAM.INFO.{self._names.stream(shard)}", {"subjects_filter": subject}
        )
        found = status["state"].get("subjects") or {}
        kept = {self._names.of_session(kind, stream) for kind in _KINDS}
        return sum(count for name, count in found.items() if name in kept)

    async def _guard(self, message: Outgoing, shard: int, stream: str, kind: str) -> None:
        subject = self._names.of_session(kind, stream)
        last = await self._reader.reads.last(shard, subject)
        message.headers[EXPECTED] = str(0 if last is None else last.sequence)
        message.headers[EXPECTED_SUBJECT] = subject

    async def _family(self, stream: str) -> int:
        """The sequence of the last entry of a session's family."""
        subject = self._names.of_session("f", stream)
        last = await self._reader.reads.last(self._names.shard(stream), subject)
        return 0 if last is None else last.sequence

    def _relative(self, stream: str, entry: Relative, family: int) -> Outgoing:
        subject = self._names.of_session("f", stream)
        return outgoing(subject, {EXPECTED: str(family)}, encode(entry))

    def _passing(self, error: Exception, what: str) -> Exception:
        """The error, if it may be another at the next try; else it is raised as one of ours."""
        if isinstance(error, ApiError) and not (error.passing or error.conflict):
            raise self._link.translate(error, what) from error
        return error
