"""The verification of a whole store: every session, what lies between them, and all receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from eventctx.log.store import EventStore, Receipt
from eventctx.queries.verification.findings import Verification
from eventctx.queries.verification.session import verify


class StoreVerification(msgspec.Struct, frozen=True):
    """The outcome for every session, and the problems that belong to none of them."""

    sessions: tuple[Verification, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when nothing was found anywhere."""
        return not self.problems and all(one.ok for one in self.sessions)


async def verify_store(
    store: EventStore,
    receipts: Mapping[str, Receipt],
    *,
    facts: bool = True,
    began: Callable[[str, int, int], None] | None = None,
) -> StoreVerification:
    """Verify every session, those in ``receipts`` that are gone included, and the store itself.

    Damage never ends it. ``began`` is called with each session's name, the number of sessions that
    are done, and that of all.
    """
    # Looked at first: what other processes append meanwhile cannot be missing then.
    inspection = await store.inspect()
    names = [info.stream async for info in store.streams()]
    names += sorted(receipts.keys() - set(names))
    sessions: list[Verification] = []
    for done, name in enumerate(names):
        if began is not None:
            began(name, done, len(names))
        sessions.append(await verify(store, name, receipts.get(name), facts=facts))
    problems = list(inspection.findings)
    missing = inspection.missing - sum(one.deleted for one in sessions)
    if missing > 0:
        problems.append(f"{missing} records that were once stored are in no session")
    return StoreVerification(tuple(sessions), tuple(problems))
