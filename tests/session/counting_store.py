"""A store in memory that notes what is asked of it, and can be full."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from eventctx.errors import StoreFull
from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended, Expected
from eventctx.stores.ack import Ack
from eventctx.stores.memory import MemoryStore


class CountingStore(MemoryStore):
    """``calls`` are the methods that were asked, peeks left out; ``appends`` the types of each
    append; ``records`` is how many were read."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.appends: list[list[str]] = []
        self.records = 0
        self.full = False

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        self.calls.append("append")
        self.appends.append([draft.type for draft in drafts])
        if self.full:
            return Ack.failed(StoreFull("the disk is full"))
        return self.waited_for(drafts, super().append(stream, drafts, expected))

    def waited_for(self, drafts: Sequence[Draft], ack: Awaitable[Appended]) -> Awaitable[Appended]:
        """What the caller of an append waits for."""
        return ack

    def read(self, *args: Any, **options: Any) -> AsyncIterator[Record]:
        self.calls.append("read")
        return self._counted(super().read(*args, **options))

    async def _counted(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        async for record in records:
            self.records += 1
            yield record

    async def bodies(self, *args: Any) -> Any:
        self.calls.append("bodies")
        return await super().bodies(*args)

    async def head(self, *args: Any) -> Any:
        self.calls.append("head")
        return await super().head(*args)
