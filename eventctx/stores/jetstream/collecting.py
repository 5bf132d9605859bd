"""A NATS client that takes many messages as the answer to one request.

A batched direct get answers with one message for each that is stored. nats-py gives every message
that arrives a dict of headers, an object, and a place in a queue that wakes a task: 45 to 60 us
each. Here a message stays the two byte strings that came: 11 to 15 us, most of it the parser's.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import NoRespondersError

from eventctx.errors import StoreUnavailable
from eventctx.stores.jetstream.layout import ERASED, FACTS, PART

_STATUS: Final = b"NATS/1.0 "
_COMPLETE: Final = b"NATS/1.0 204"
_NOT_FOUND: Final = b"NATS/1.0 404"
_NOBODY: Final = b"NATS/1.0 503"
_SUBJECT: Final = b"\r\nNats-Subject: "
_SEQUENCE: Final = b"\r\nNats-Sequence: "
_PENDING: Final = b"\r\nNats-Num-Pending: "
_UP_TO: Final = b"\r\nNats-UpTo-Sequence: "
_OURS: Final = tuple((name, f"\r\n{name}: ".encode()) for name in (FACTS, PART, ERASED))


class Stored(NamedTuple):
    """A stored message: its place in its stream of JetStream, subject, headers, and data."""

    sequence: int
    subject: str
    headers: bytes
    data: bytes

    @property
    def ours(self) -> dict[str, str]:
        """The headers that eventctx gave it."""
        headers = self.headers
        found: dict[str, str] = {}
        if b"Ectx-" in headers:
            for name, mark in _OURS:
                start = headers.find(mark)
                if start >= 0:
                    start += len(mark)
                    found[name] = headers[start : headers.index(b"\r", start)].decode()
        return found


def as_stored(headers: bytes, data: bytes) -> Stored:
    """A message of a direct get: the server tells of its place in headers.

    Raises ValueError for a message without them.
    """
    # It puts its own behind those of the publisher, so nobody can forge them.
    start = headers.rfind(_SUBJECT)
    end = headers.index(b"\r", start + 2) if start >= 0 else 0
    if start < 0 or not headers.startswith(_SEQUENCE, end):
        raise ValueError(f"expected the place of a message, found {headers!r}")
    place = end + len(_SEQUENCE)
    sequence = int(headers[place : headers.index(b"\r", place)])
    return Stored(sequence, headers[start + len(_SUBJECT) : end].decode(), headers, data)


class Collected(NamedTuple):
    """The messages of an answer, and how many the server has behind them that match, too.

    ``up_to`` is the last sequence that the server had when it answered; 0 where it did not say.
    """

    messages: list[Stored]
    pending: int
    up_to: int = 0


class _Collection:
    __slots__ = ("done", "messages")

    def __init__(self, done: asyncio.Future[bytes]) -> None:
        self.done = done
        self.messages: list[tuple[bytes, bytes]] = []


class CollectingClient(Client):
    """nats-py's client, which besides collects the answers to batched requests."""

    def __init__(self) -> None:
        super().__init__()
        self._collections: dict[bytes, _Collection] = {}
        self._collecting: Subscription | None = None
        self._collecting_id = -1
        self._prefix = ""
        self._asked = 0

    async def collect(self, subject: str, request: bytes, silence: float = 5.0) -> Collected:
        """Send ``request`` and gather what comes until the server says that this was all.

        ``silence`` is the longest one between two messages, in seconds. Raises TimeoutError, and
        nats-py's NoRespondersError when nobody serves the subject, and StoreUnavailable when the
        server refuses the request.
        """
        if self._collecting is None:
            self._prefix = self.new_inbox()
            self._collecting = await self.subscribe(self._prefix + ".*")
            self._collecting_id = self._collecting._id
        self._asked += 1
        inbox = f"{self._prefix}.{self._asked}"
        key = inbox.encode()
        loop = asyncio.get_running_loop()
        collection = self._collections[key] = _Collection(loop.create_future())
        try:
            await self.publish(subject, request, reply=inbox)
            status = await _until_silent(collection, silence)
        finally:
            del self._collections[key]
        if status.startswith(_COMPLETE):
            messages = [as_stored(*message) for message in collection.messages]
            return Collected(messages, _number(status, _PENDING), _number(status, _UP_TO))
        if status.startswith(_NOT_FOUND):
            return Collected([], 0)
        if status.startswith(_NOBODY):
            raise NoRespondersError
        said = status.split(b"\r\n", 1)[0].removeprefix(_STATUS).decode(errors="replace")
        raise StoreUnavailable(f"the server refused a read of {subject}: {said}")

    async def _connect_to_server(self, s: Any) -> None:
        # nats-py leaves the socket of a server that took it and said nothing, as one that is
        # halted, for the collector of garbage.
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        # nats-py's parser calls this for each message; a test fails if a release no longer does.
        if sid != self._collecting_id:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        collection = self._collections.get(bytes(subject))
        if collection is None:
            return  # its request gave up
        if headers and headers.startswith(_STATUS):
            if not collection.done.done():
                collection.done.set_result(headers)
        else:
            collection.messages.append((headers, data))


def _number(status: bytes, name: bytes) -> int:
    start = status.find(name)
    if start < 0:
        return 0
    start += len(name)
    return int(status[start : status.index(b"\r", start)])


async def _until_silent(collection: _Collection, silence: float) -> bytes:
    while True:
        before = len(collection.messages)
        try:
            return await asyncio.wait_for(asyncio.shield(collection.done), silence)
        except TimeoutError:
            if len(collection.messages) == before:
                raise
