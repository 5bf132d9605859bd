"""Reads of a JetStream cluster, repeated while it has no leader, and the client that collects them.

Two kinds. The *leader* of a stream answers one message at a time; it has all that was ever
acknowledged, unless its own files were damaged. Any *replica* answers a direct get, of many
messages at once; it may lag by some milliseconds, or have lost a part of its files, and then
its answer is short, without an error.

nats-py gives every message that arrives a dict of headers, an object, and a place in a queue that
wakes a task: 45 to 60 µs each. ``CollectingClient`` keeps the two byte strings that came: 11 to
15 µs, most of it the parser's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError

from eventctx.errors import StoreUnavailable
from eventctx.stores.jetstream.layout import ERASED, FACTS, PART, Names

_STATUS: Final = b"NATS/1.0 "
_COMPLETE: Final = b"NATS/1.0 204"
_NOT_FOUND: Final = b"NATS/1.0 404"
_NOBODY: Final = b"NATS/1.0 503"
_SUBJECT: Final = b"\r\nNats-Subject: "
_SEQUENCE: Final = b"\r\nNats-Sequence: "
_PENDING: Final = b"\r\nNats-Num-Pending: "
_UP_TO: Final = b"\r\nNats-UpTo-Sequence: "
_OURS: Final = tuple((name, f"\r\n{name}: ".encode()) for name in (FACTS, PART, ERASED))


class StoredMessage(NamedTuple):
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


def parse_stored(headers: bytes, data: bytes) -> StoredMessage:
    """A message of a direct get: the server tells of its place in headers.

    Raises ValueError for a message without them.
    """
    # The server's headers follow those of the publisher, so no publisher can forge them.
    start = headers.rfind(_SUBJECT)
    end = headers.index(b"\r", start + 2) if start >= 0 else 0
    if start < 0 or not headers.startswith(_SEQUENCE, end):
        raise ValueError(f"expected the place of a message, found {headers!r}")
    place = end + len(_SEQUENCE)
    sequence = int(headers[place : headers.index(b"\r", place)])
    return StoredMessage(sequence, headers[start + len(_SUBJECT) : end].decode(), headers, data)


class Collected(NamedTuple):
    """The messages of an answer, and the number of further matches on the server.

    ``up_to`` is the last sequence that the server had when it answered; 0 where it did not say.
    """

    messages: list[StoredMessage]
    pending: int
    up_to: int = 0


class _Collection:
    __slots__ = ("done", "messages")

    def __init__(self, done: asyncio.Future[bytes]) -> None:
        self.done = done
        self.messages: list[tuple[bytes, bytes]] = []


class CollectingClient(Client):
    """nats-py's client that also collects the answers to batched requests."""

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
            messages = [parse_stored(*message) for message in collection.messages]
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


PAGE_MESSAGES: Final = 2000
PAGE_BYTES: Final = 4 * 2**20
MOST_SUBJECTS: Final = 1000
"""Most subjects of one question for their last messages; the server takes 1,024."""

_TRY_SECONDS = 2.0
_ACTIVE_NANOSECONDS = 3 * 10**9
"""Servers elect another leader when they heard of none for four seconds at least."""
_LONGEST_PAUSE_SECONDS = 0.5
_NO_MESSAGE = 10037
_NO_STREAM = 10059

T = TypeVar("T")


class _ApiError(msgspec.Struct, frozen=True):
    """An error of the JetStream API."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Message(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    data: bytes = b""
    hdrs: bytes = b""


class _Got(msgspec.Struct, frozen=True):
    error: _ApiError | None = None
    message: _Message | None = None


class StreamState(msgspec.Struct, frozen=True):
    """The messages of a stream's leader: their number, and the first and last sequence."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    deleted: tuple[int, ...] = ()
    subjects: dict[str, int] = {}

    @property
    def gaps(self) -> int:
        """How many messages were deleted, or are lost."""
        return self.last_seq - self.messages


class _Peer(msgspec.Struct, frozen=True):
    current: bool = False
    offline: bool = False
    active: int = 0


class _Group(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: tuple[_Peer, ...] = ()

    @property
    def current(self) -> bool:
        """Whether the leader heard of a majority lately, so that no other can lead."""
        heard = [
            peer.current and not peer.offline and peer.active < _ACTIVE_NANOSECONDS
            for peer in self.replicas
        ]
        return bool(self.leader) and 2 * (1 + sum(heard)) > 1 + len(heard)


class StreamStatus(msgspec.Struct, frozen=True):
    """The answer of a stream's leader about the stream."""

    error: _ApiError | None = None
    state: StreamState = StreamState()
    cluster: _Group = _Group()


_decode_got = msgspec.json.Decoder(_Got).decode
_decode_status = msgspec.json.Decoder(StreamStatus).decode


class _TryAgain(Exception):
    """No answer, or one that says that there is no leader just now."""


class RetryingReads:
    """Reads of the streams of one store, for use in the event loop of its client."""

    def __init__(self, client: CollectingClient, names: Names, patience: float) -> None:
        self.client = client
        self.names = names
        self.patience = patience

    async def last(self, shard: int, subject: str) -> StoredMessage | None:
        """The last message of a subject, from the leader; None if it has none."""
        return await self.last_of(self.names.stream(shard), subject)

    async def last_of(self, stream: str, subject: str) -> StoredMessage | None:
        """The last message of a subject of a stream, from the leader; None if it has none."""
        return await self._from_leader(stream, {"last_by_subj": subject})

    async def next(self, shard: int, subject: str, sequence: int) -> StoredMessage | None:
        """The first message of a subject from ``sequence`` on, from the leader."""
        return await self.next_of(self.names.stream(shard), subject, sequence)

    async def next_of(self, stream: str, subject: str, sequence: int) -> StoredMessage | None:
        """The first message of a subject of a stream from ``sequence`` on, from the leader."""
        return await self._from_leader(stream, {"next_by_subj": subject, "seq": max(sequence, 1)})

    async def status(self, shard: int, *, deleted: bool = False) -> StreamStatus:
        """The leader's report of the stream; with ``deleted`` the sequences of deleted messages."""
        stream = self.names.stream(shard)
        request = {"deleted_details": True} if deleted else {}

        async def ask() -> StreamStatus:
            answer = await self._api(f"STREAM.INFO.{stream}", request)
            status = _decode_status(answer)
            _check(stream, status.error)
            return status

        return await self._patiently(ask)

    async def subjects(self, shard: int) -> AsyncIterator[str]:
        """The subjects of all messages of a shard, as its leader has them."""
        stream = self.names.stream(shard)
        offset = 0
        while True:
            request = {"subjects_filter": f"{self.names.prefix}.{shard}.>", "offset": offset}

            async def ask(request: Mapping[str, Any] = request) -> StreamStatus:
                status = _decode_status(await self._api(f"STREAM.INFO.{stream}", request))
                _check(stream, status.error)
                return status

            found = (await self._patiently(ask)).state.subjects
            for subject in found:
                yield subject
            if not found:
                return
            offset += len(found)

    async def count(self, shard: int, subject: str) -> int:
        """How many messages of a subject the leader has, unreadable ones included."""
        stream = self.names.stream(shard)

        async def ask() -> StreamStatus:
            status = _decode_status(
                await self._api(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
            )
            _check(stream, status.error)
            return status

        return (await self._patiently(ask)).state.subjects.get(subject, 0)

    async def page(
        self,
        shard: int,
        subject: str,
        sequence: int,
        *,
        messages: int = PAGE_MESSAGES,
        size: int = PAGE_BYTES,
    ) -> Collected:
        """Messages of a subject from ``sequence`` on, from any replica: it may not have all."""
        request = {
            "next_by_subj": subject,
            "seq": max(sequence, 1),
            "batch": messages,
            "max_bytes": size,
        }
        return await self._direct(shard, request)

    async def lasts(
        self, shard: int, subjects: Sequence[str], at_least: int
    ) -> list[StoredMessage]:
        """The last message of each subject that has one, in order of their sequences.

        From a replica that has the message ``at_least``, or whatever came in its place.
        """
        request = {"multi_last": list(subjects)}

        async def ask() -> Collected:
            found = await self._once(shard, request)
            # A replica without any of the subjects does not say how far it is.
            if found.messages and found.up_to < at_least:
                raise _TryAgain(f"a replica is at {found.up_to}, expected {at_least}")
            return found

        found = await self._patiently(ask)
        return sorted(found.messages)

    async def _direct(self, shard: int, request: Mapping[str, Any]) -> Collected:
        return await self._patiently(lambda: self._once(shard, request))

    async def _once(self, shard: int, request: Mapping[str, Any]) -> Collected:
        subject = f"$JS.API.DIRECT.GET.{self.names.stream(shard)}"
        return await self.client.collect(subject, msgspec.json.encode(request), _TRY_SECONDS)

    async def _from_leader(self, stream: str, request: Mapping[str, Any]) -> StoredMessage | None:
        async def ask() -> StoredMessage | None:
            answer = await self._api(f"STREAM.MSG.GET.{stream}", request)
            got = _decode_got(answer)
            if got.error is not None and got.error.err_code == _NO_MESSAGE:
                return None
            _check(stream, got.error)
            found = got.message
            if found is None:
                raise _TryAgain("expected a message, found an empty answer")
            return StoredMessage(found.seq, found.subject, found.hdrs, found.data)

        return await self._patiently(ask)

    async def _api(self, operation: str, request: Mapping[str, Any]) -> bytes:
        answer = await self.client.request(
            f"$JS.API.{operation}", msgspec.json.encode(request), timeout=_TRY_SECONDS
        )
        return answer.data

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer, asked for again for ``patience`` seconds while there is none."""
        until = time.monotonic() + self.patience
        pause = 0.01
        while True:
            try:
                return await ask()
            except (TimeoutError, NatsError, _TryAgain, msgspec.MsgspecError) as error:
                gone = isinstance(error, ConnectionClosedError) or self.client.is_closed
                if gone or time.monotonic() + pause > until:
                    # Never an error's own text, unless it is ours: it may quote a URL.
                    said = str(error) if isinstance(error, _TryAgain) else type(error).__name__
                    waited = "" if gone else f" for {self.patience:g} s"
                    raise StoreUnavailable(
                        f"the NATS servers gave no answer{waited}: "
                        f"{said}; see whether they run, and whether the "
                        f"streams of {self.names.prefix} have a leader"
                    ) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _check(stream: str, error: _ApiError | None) -> None:
    if error is None:
        return
    if error.err_code == _NO_STREAM:
        raise StoreUnavailable(
            f"expected the stream {stream!r} of the store, found none: it was removed, or these "
            "credentials belong to another account"
        )
    if error.code < 500:
        raise StoreUnavailable(f"{stream}: the server refused a read: {error.description}")
    raise _TryAgain(error.description)
