"""A backup is one only when it was read back: the copy of a store, opened and verified whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from eventctx.errors import InvalidSetting
from eventctx.log.store import EventStore, Receipt
from eventctx.queries.verification.whole_store import StoreVerification, verify_store
from eventctx.stores.location import open_store


@runtime_checkable
class _Copied(Protocol):
    async def backup(self, path: Path) -> None: ...


async def back_up(
    store: EventStore, path: Path, receipts: Mapping[str, Receipt]
) -> StoreVerification:
    """Copy a store to the new file ``path``, and verify the copy, which stays whatever is found.

    ``receipts`` were noted before the call, so the copy must hold what they are for. Raises
    InvalidSetting for a store that is no file, and what ``SqliteStore.backup`` raises.
    """
    if not isinstance(store, _Copied):
        raise InvalidSetting("backup: expected a store in a file, found one that is in memory only")
    await store.backup(path)
    return await verify_file(path, receipts)


async def verify_file(path: Path, receipts: Mapping[str, Receipt]) -> StoreVerification:
    """Verify the store in a file that nobody uses yet. Raises what opening a store raises."""
    copy = await open_store(f"sqlite:///{path}", create=False)
    try:
        return await verify_store(copy, receipts)
    finally:
        await copy.close()
