"""Subscriptions: a bell that rings when something may have been stored, and reads behind it.

The servers publish the headers of each unit once more when it is stored (``<NAME>.live.>``). That
message may be lost, as when the connection breaks, so it is only a bell; and the bell rings once in
a while by itself. What a subscription delivers is always read, and checked as every read is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from eventctx.errors import StoreUnavailable, StreamNotFound
from eventctx.log.record import Record
from eventctx.stores.ack import Ack, Bell
from eventctx.stores.jetstream.reads.whole import GlobalScan
from eventctx.stores.jetstream.wire.connection import ServerLink
from eventctx.stores.jetstream.wire.layout import token

POLL_SECONDS: Final = 1.0
"""Seconds after which a subscription looks without having heard anything."""

_PAGE = 1000


class Subscriptions:
    """The subscriptions of one store; they can be used from any event loop."""

    def __init__(self, link: ServerLink, whole: GlobalScan) -> None:
        self._link = link
        self._whole = whole
        self._reader = whole.reader
        self._all = Bell()
        self._bells: dict[str, Bell] = {}
        self._watchers: dict[str, int] = {}
        self._subscription: Subscription | None = None
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        """End every subscription, before the connection is closed. Callable from any thread."""
        self._closed = True
        self.ring()

    def ring(self) -> None:
        """Wake every subscription. Callable from any thread."""
        self._all.ring()
        for bell in list(self._bells.values()):
            bell.ring()

    def listen(self, stream: str | None) -> Ack[None]:
        """The ack that is settled by the next append to ``stream``, or to any."""
        return self._all.listen() if stream is None else self._bells[token(stream)].listen()

    async def subscribe(
        self, stream: str | None, after: int, bodies: bool
    ) -> AsyncGenerator[Record, None]:
        """See ``EventStore.subscribe``. Waits for a stream that does not exist yet."""
        key = "" if stream is None else token(stream)
        try:
            await self._link.run(self._watch(key))
            while not self._closed:
                bell = self.listen(stream)
                page = await self._link.run(self._news(stream, after, bodies))
                for record in page:
                    after = record.global_position if stream is None else record.position
                    yield record
                if not page:
                    await bell
        except StoreUnavailable:
            if not self._closed:
                raise
        finally:
            if not self._closed:
                self._link.run(self._unwatch(key))

    async def _news(self, stream: str | None, after: int, bodies: bool) -> list[Record]:
        if stream is None:
            return await (await self._whole.scan(after=after, limit=_PAGE, bodies=bodies)).page()
        try:
            scan = await self._reader.scan(stream, start=after + 1, limit=_PAGE, bodies=bodies)
        except StreamNotFound:
            return []
        return await scan.page()

    async def _watch(self, key: str) -> None:
        self._watchers[key] = self._watchers.get(key, 0) + 1
        if key:
            self._bells.setdefault(key, Bell())
        if self._poll is None:
            self._poll = self._link.keep(self._look())
            live = f"{self._link.names.prefix}.live.>"
            self._subscription = await self._link.client.subscribe(live, cb=self._heard)

    async def _unwatch(self, key: str) -> None:
        self._watchers[key] -= 1
        if self._watchers[key] > 0:
            return
        del self._watchers[key]
        self._bells.pop(key, None)
        if not self._watchers and self._poll is not None:
            self._poll.cancel()
            self._poll = None
            if self._subscription is not None:
                gone, self._subscription = self._subscription, None
                await gone.unsubscribe()

    async def _heard(self, message: Msg) -> None:
        bell = self._bells.get(message.subject.rpartition(".")[2])
        if bell is not None:
            bell.ring()
        self._all.ring()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.ring()
