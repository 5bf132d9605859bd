"""The comparison of a store with the receipts that were noted about it."""

from __future__ import annotations

from eventctx.errors import LogCorrupted
from eventctx.log.store import EventStore, Receipt


async def mismatch(store: EventStore, receipt: Receipt) -> str | None:
    """What stands in the store instead of what a receipt says, in words; None if that holds."""
    try:
        info = await store.head(receipt.stream)
        if info is None:
            return "the session is gone"
        if info.deleted:
            return "the session was deleted"
        if info.head < receipt.position:
            return f"the session ends at {info.head}"
        if info.head == receipt.position:
            digest = info.digest
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
