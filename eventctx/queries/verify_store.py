"""The verification of a whole store: every session, what lies between them, and all receipts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.store import EventStore, Receipt
from eventctx.queries.verification import (
    Verification,
    VerificationAnswer,
    session_answer,
    store_answer,
)
from eventctx.queries.verify import verify
from eventctx.stores.location import open_store

Began = Callable[[str, int, int], None]
"""Gets the name of a session, the number of those that are done, and that of all."""


class StoreVerification(msgspec.Struct, frozen=True):
    """The outcome for every session, and the problems that belong to none of them."""

    sessions: tuple[Verification, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when nothing was found anywhere."""
        return not self.problems and all(one.ok for one in self.sessions)


def verification_answers(checked: StoreVerification) -> list[VerificationAnswer]:
    """A row for each session, and one without a name for what is wrong with the store itself."""
    rows = [session_answer(one) for one in checked.sessions]
    return [*rows, store_answer(checked.problems)] if checked.problems else rows


async def verify_store(
    store: EventStore,
    receipts: Mapping[str, Receipt],
    *,
    facts: bool = True,
    began: Began | None = None,
) -> StoreVerification:
    """Verify every session, those in ``receipts`` that are gone included, and the store itself.

    Damage never ends it. ``began`` is called with each session's name, the number of sessions that
    are done, and that of all.
    """
    sessions: list[Verification] = []
    problems: list[str] = []
    async for found in verifications(store, receipts, facts=facts, began=began):
        if isinstance(found, Verification):
            sessions.append(found)
        else:
            problems.append(found)
    return StoreVerification(tuple(sessions), tuple(problems))


async def verifications(
    store: EventStore,
    receipts: Mapping[str, Receipt],
    *,
    facts: bool = True,
    began: Began | None = None,
) -> AsyncIterator[Verification | str]:
    """Yield what ``verify_store`` finds: every session, then each problem of the store.

    Any number of sessions takes the memory of the largest, and of ``receipts``.
    """
    # Looked at first: what other processes append meanwhile cannot be missing then.
    inspection = await store.inspect()
    gone = set(receipts)
    count = deleted = 0
    if began is not None:
        async for info in store.streams():
            gone.discard(info.stream)
            count += 1
        count += len(gone)
        gone = set(receipts)
    done = 0
    async for name in _names(store, gone):
        if began is not None:
            began(name, done, count)
        one = await verify(store, name, receipts.get(name), facts=facts)
        deleted += one.deleted
        done += 1
        yield one
    for finding in inspection.findings:
        yield finding
    missing = inspection.missing - deleted
    if missing > 0:
        yield f"{missing} records that were once stored are in no session"


async def _names(store: EventStore, known: set[str]) -> AsyncIterator[str]:
    """The names of all streams, then those that only ``known`` names."""
    async for info in store.streams():
        known.discard(info.stream)
        yield info.stream
    for name in sorted(known):
        yield name


KEPT_TWICE: Final = (
    "back it up with the server's own tools, and check what they restore with `eventctx verify`, "
    "or copy its sessions into a file: `eventctx copy URL FILE`"
)
"""Advice for a store on a server, which has no file to copy."""


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
    """The kind of a store that is no file, and another way to keep its sessions twice."""
    described = await store.describe()
    if described.kind == "memory":
        return "one that is in memory only"
    return f"one on a server ({described.kind}); {KEPT_TWICE}"


async def verify_file(path: Path, receipts: Mapping[str, Receipt]) -> StoreVerification:
    """Verify the store in a file that is not in use yet. Raises what opening a store raises."""
    copy = await open_store(f"sqlite:///{path}", create=False)
    try:
        return await verify_store(copy, receipts)
    finally:
        await copy.close()
