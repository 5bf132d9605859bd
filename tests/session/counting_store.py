"""A store in memory that notes the types of each append, and can be full."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from eventctx.errors import StoreFull
from eventctx.log.record import Draft
from eventctx.log.store import Appended, Expected
from eventctx.stores.memory import MemoryStore


class CountingStore(MemoryStore):
    """``appends`` are the types of the records of each append that was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[list[str]] = []
        self.full = False

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        self.appends.append([draft.type for draft in drafts])
        if self.full:
            return _full()
        return super().append(stream, drafts, expected)


async def _full() -> Appended:
    raise StoreFull("the disk is full")
