"""A backup is one only when it was read back: the copy of a store, opened and verified whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from eventctx.errors import InvalidSetting
from eventctx.log.store import EventStore, Receipt
from eventctx.queries.verification.whole_store import StoreVerification, verify_store
from eventctx.stores.location import open_store

KEPT_TWICE: Final = (
    "back it up with the server's own tools, and check what they restore with `eventctx verify`, "
    "or copy its sessions into a file: `eventctx copy URL FILE`"
)
"""What to do about a store on a server, of which there is no file to copy."""


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
        raise InvalidSetting(f"backup: expected a store in a file, found {await _found(store)}")
    await store.backup(path)
    return await verify_file(path, receipts)


async def _found(store: EventStore) -> str:
    """What a store is that is no file, and how its sessions are kept twice all the same."""
    described = await store.describe()
    if described.kind == "memory":
        return "one that is in memory only"
    return f"one on a server ({described.kind}); {KEPT_TWICE}"


async def verify_file(path: Path, receipts: Mapping[str, Receipt]) -> StoreVerification:
    """Verify the store in a file that nobody uses yet. Raises what opening a store raises."""
    copy = await open_store(f"sqlite:///{path}", create=False)
    try:
        return await verify_store(copy, receipts)
    finally:
        await copy.close()
