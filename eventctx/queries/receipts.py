"""Notes receipts of sessions in the book, and compares a store with the receipts in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from eventctx.errors import LogCorrupted, StoreError
from eventctx.log.record import Record
from eventctx.log.store import EventStore, Receipt
from eventctx.queries.verification import sessions_gone
from eventctx.stores.receipt_book import ReceiptBook

_MOST_UNNOTED: Final = 1_000
"""Sessions without a turn's end whose newest record is remembered."""


class ReceiptKeeper:
    """Takes every stored record. Without a book it does nothing."""

    def __init__(self, store: EventStore, book: ReceiptBook | None) -> None:
        self.book = book
        self._store = store
        self._unnoted: dict[str, Record] = {}
        self._told_gone = False

    def before(self, publish: Callable[[Record], None]) -> Callable[[Record], None]:
        """``publish``, after the note of each record, where there is a book."""
        if self.book is None:
            return publish

        def noted(record: Record) -> None:
            self.stored(record)
            publish(record)

        return noted

    def stored(self, record: Record) -> None:
        """Note a session's head now if the record ends a turn, else at the end."""
        if self.book is None:
            return
        if record.type == "prompt:complete":
            self._unnoted.pop(record.stream, None)
            self.book.note(_receipt(record))
            return
        self._unnoted[record.stream] = record
        if len(self._unnoted) > _MOST_UNNOTED:
            self.note_all()

    def note_all(self) -> None:
        """Note the heads of all other sessions."""
        if self.book is not None:
            for record in self._unnoted.values():
                self.book.note(_receipt(record))
            self._unnoted.clear()

    def copied(self, receipt: Receipt) -> None:
        """Note the head of a session that was copied from another store, and read back."""
        self._unnoted.pop(receipt.stream, None)
        if self.book is not None:
            self.book.note(receipt)

    def deleted(self, record: Record) -> None:
        """Note the record that is left of a session which was deleted on purpose."""
        self._unnoted.pop(record.stream, None)
        if self.book is not None:
            self.book.deleted(_receipt(record))

    def erased(self, sessions: Iterable[str]) -> None:
        """Note that contents of sessions were erased."""
        if self.book is not None:
            for session in sessions:
                self.book.erased(session)

    async def check_store(self) -> None:
        """Warn if the session that was written last is not what its receipt says."""
        if self.book is not None:
            newest = await asyncio.to_thread(self.book.newest)
            if newest is not None:
                await self._check(newest)

    async def check_session(self, session: str) -> None:
        """Warn if a session is not what its last receipt says."""
        last = (await self.receipts()).get(session)
        if last is not None and session not in self._unnoted:
            await self._check(last)

    async def receipts(self) -> dict[str, Receipt]:
        """The last receipt of each session. Empty without a book, or if it cannot be read."""
        if self.book is None:
            return {}
        try:
            if self.book.is_read:
                return self.book.last()
            return await asyncio.to_thread(self.book.last)
        except StoreError as error:
            self.book.complain(error)
            return {}

    async def _check(self, receipt: Receipt) -> None:
        found = await mismatch(self._store, receipt)
        if found is None or self.book is None or (found == GONE and self._told_gone):
            return
        if found == GONE:
            self._told_gone = True
            known = await self.receipts()
            gone = [name for name in known if await self._store.head(name) is None]
            found = GONE if len(gone) < 2 else sessions_gone(gone)
        self.book.mismatch(receipt, found)


GONE: Final = "the session is gone"


def _receipt(record: Record) -> Receipt:
    return Receipt(record.stream, record.position, record.digest)


async def mismatch(store: EventStore, receipt: Receipt) -> str | None:
    """The record in the place of a receipt, in words; None if the receipt holds."""
    try:
        info = await store.head(receipt.stream)
        if info is None:
            return GONE
        if info.head == receipt.position:
            digest = info.digest
        elif info.deleted:
            return "the session was deleted"
        elif info.head < receipt.position:
            return f"the session ends at {info.head}"
        else:
            at = receipt.position
            found = store.read(receipt.stream, start=at, stop=at, bodies=False)
            records = [record async for record in found]
            if not records:
                return "that record is gone"
            digest = records[0].digest
    except LogCorrupted as error:
        return f"the session cannot be read: {error.problem}"
    return None if digest == receipt.digest else "other records stand there"
