"""The one connection of a store: a thread with its own event loop, requests, batches, retries.

All requests to the servers run in that loop. Other threads hand it coroutines (``run``) and get
acks, so a store can be used from several event loops.

A request that is lost, or that meets a cluster without a leader, is sent again until ``patience``
seconds have passed; so every request must be safe to do twice. A batch of messages is (``send``),
because its messages state which message they expect before them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
import nats.errors
from nats.aio.msg import Msg

from eventctx.errors import EventctxError, StoreFull, StoreUnavailable
from eventctx.stores.ack import Ack, settle
from eventctx.stores.jetstream.address import ServerAddress
from eventctx.stores.jetstream.layout import Names, WireMessage
from eventctx.stores.jetstream.retrying_reads import CollectingClient

T = TypeVar("T")

ATTEMPT_SECONDS: Final = 5.0
"""The longest wait of one try for an answer."""

_WRONG_LAST_SEQUENCE: Final = (10071, 10164)
"""The session ends with another message; the second number, while that one is being stored."""

STREAM_NOT_FOUND: Final = 10059

_NO_MESSAGE: Final = frozenset((10037, 10043, 10057))

_FULL: Final = frozenset((10023, 10028, 10047, 10077, 10110))
_CONNECT_SECONDS: Final = 5.0
_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
_PENDING_BYTES: Final = 16 * 2**20

DOUBTS: Final = (
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.ConnectionClosedError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.StaleConnectionError,
    nats.errors.NoServersError,
    TimeoutError,
    OSError,
)
"""Errors after which a request may have been carried out or not."""


class ApiError(Exception):
    """The servers' answer to a request that they refuse."""

    def __init__(self, code: int, number: int, description: str) -> None:
        super().__init__(f"{description} (error {number})")
        self.code = code
        self.number = number
        self.description = description

    @property
    def passing(self) -> bool:
        """Whether the next try may succeed: there is no leader now, or the servers are busy."""
        return self.code in (429, 503) or self.number in (10008, 10009, 10176, 10210)

    @property
    def conflict(self) -> bool:
        """Whether nothing was stored because a message expected another end of its subject."""
        return self.number in _WRONG_LAST_SEQUENCE

    @property
    def full(self) -> bool:
        """Whether no room is left."""
        return self.number in _FULL or "no space left" in self.description


class Tries:
    """Tries of one thing until the store's patience is over, with longer pauses between them."""

    def __init__(self, link: ServerLink, what: str) -> None:
        self._link = link
        self._what = what
        self._until = time.monotonic() + link.patience
        self._number = 0

    async def after(self, error: Exception) -> None:
        """Pause after a try that failed with ``error``.

        Raises StoreUnavailable, caused by it, if the store was closed or its patience is over.
        """
        if self._link.closed:
            raise self._link.gone() from error
        if time.monotonic() >= self._until:
            raise self._link.translate(error, self._what) from error
        await asyncio.sleep(_PAUSES[min(self._number, len(_PAUSES) - 1)])
        self._number += 1


class ServerLink:
    """The connection of a store; ``connect`` makes it, in its own loop."""

    def __init__(self, address: ServerAddress, *, patience: float) -> None:
        self.address = address
        self.patience = patience
        self.names = Names(address.name, address.shards or 1)
        self.client = CollectingClient()
        self.closed = False
        self._error: Exception | None = None
        self.process = os.getpid()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._serve, name=f"eventctx-jetstream {address.name}", daemon=True
        )
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> Ack[T]:
        """Run a coroutine in the store's loop. Callable from any thread."""
        ack: Ack[T] = Ack()
        if self.closed or self.process != os.getpid():
            work.close()
            return Ack.failed(self.gone())
        self.loop.call_soon_threadsafe(self._begin, work, ack)
        return ack

    def gone(self) -> StoreUnavailable:
        """The error for the use of a store that is closed, or belongs to another process."""
        if self.process != os.getpid():
            return StoreUnavailable(
                f"{self.address.place}: expected the process that opened the store, found one that "
                "was forked from it; open stores after the fork, or start processes with 'spawn'"
            )
        return StoreUnavailable(f"{self.address.place}: the store is closed; open it again")

    def _begin(self, work: Coroutine[Any, Any, T], ack: Ack[T]) -> None:
        self.keep(self._run_and_settle(work, ack))

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task of the store's loop that lives until it ends."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_and_settle(self, work: Coroutine[Any, Any, T], ack: Ack[T]) -> None:
        try:
            settle([(ack, await work, None)])
        except EventctxError as error:
            settle([(ack, None, error)])
        except asyncio.CancelledError:
            settle([(ack, None, self.gone())])
        except Exception as error:
            settle([(ack, None, self.translate(error))])

    async def connect(self) -> None:
        """Connect; afterwards a lost connection is made again for as long as the store is open.

        Raises StoreUnavailable when no server answers, or one refuses the credentials.
        """
        connecting = self.loop.create_task(
            self.client.connect(
                list(self.address.servers),
                name="eventctx",
                error_cb=self._note,
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,  # type: ignore[arg-type]  # it is only slept
                connect_timeout=2,
                ping_interval=2,
                max_outstanding_pings=2,
                pending_size=_PENDING_BYTES,
                **self.address.options(),
            )
        )
        until = self.loop.time() + min(self.patience, _CONNECT_SECONDS)
        while not connecting.done() and self.loop.time() < until and not self._refused():
            await asyncio.wait({connecting}, timeout=0.05)
        while not connecting.done():
            # A cancellation is lost where a wait of the client's ends in the same moment.
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=0.05)
        try:
            await connecting
        except (asyncio.CancelledError, Exception) as error:
            found = self._error if isinstance(error, asyncio.CancelledError) else error
            raise StoreUnavailable(
                f"{self.address.place}: expected a NATS server that takes the connection, found "
                f"{_in_words(found)}"
            ) from error

    async def _note(self, error: Exception) -> None:
        self._error = error

    def _refused(self) -> bool:
        return isinstance(self._error, nats.errors.AuthorizationError) or (
            "authorization" in str(self._error).lower()
        )

    async def request(self, subject: str, payload: Mapping[str, Any] | bytes = b"") -> Any:
        """The decoded answer of the JetStream API to a request that may be done twice.

        Raises ApiError, and StoreUnavailable after ``patience``.
        """
        body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        tries = Tries(self, subject)
        while True:
            try:
                answer = await self.client.request(subject, body, timeout=ATTEMPT_SECONDS)
                return check_answer(answer)
            except DOUBTS as error:
                await tries.after(error)
            except ApiError as error:
                if not error.passing:
                    raise
                await tries.after(error)

    async def store(self, subject: str, message: WireMessage) -> int:
        """Store one message that may be stored twice; its sequence. Raises StoreUnavailable."""
        tries = Tries(self, subject)
        while True:
            try:
                answer = await self.client.request(
                    subject,
                    message.payload,
                    timeout=ATTEMPT_SECONDS,
                    headers=dict(message.headers) or None,
                )
                return int(check_answer(answer)["seq"])
            except DOUBTS as error:
                await tries.after(error)
            except ApiError as error:
                if not error.passing:
                    raise self.translate(error) from error
                await tries.after(error)

    async def destroy(self, stream: str, sequence: int) -> None:
        """Overwrite a message's bytes and delete it, if it is there. Raises StoreUnavailable."""
        try:
            await self.request(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": sequence})
        except ApiError as error:
            if error.number not in _NO_MESSAGE:
                raise self.translate(error, f"deleting from {stream}") from error

    def translate(self, error: Exception, what: str = "") -> EventctxError:
        """An error of nats-py or of the servers as one of ours. It names no credential."""
        if isinstance(error, EventctxError):
            return error
        doing = f" ({what})" if what else ""
        kind = StoreFull if isinstance(error, ApiError) and error.full else StoreUnavailable
        return kind(f"{self.address.place}: {_in_words(error)}{doing}")

    async def shut(self) -> None:
        """Close the connection; in the store's loop."""
        with suppress(Exception):
            await self.client.close()

    def end(self) -> None:
        """End the thread. Work that is still under way fails with StoreUnavailable."""
        self.closed = True
        if self.process != os.getpid():
            return
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.create_task, self._stop())
            self._thread.join(10)

    async def _stop(self) -> None:
        own = asyncio.current_task()
        await self.shut()
        left = [task for task in asyncio.all_tasks() if task is not own]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.loop.stop()


def check_answer(answer: Msg) -> Any:
    """The decoded answer of the servers. Raises ApiError for a refusal."""
    decoded = msgspec.json.decode(answer.data)
    error = decoded.get("error")
    if error is not None:
        raise ApiError(error.get("code", 0), error.get("err_code", 0), error.get("description", ""))
    return decoded


def _in_words(error: BaseException | None) -> str:
    """The meaning of an error for people. Never its own text, which may quote a URL."""
    if error is None:
        return "no answer"
    if isinstance(error, ApiError):
        return f"the servers refuse it: {error}"
    if isinstance(error, nats.errors.NoRespondersError):
        return "no server answers for the stream: it has no leader now, or JetStream is off"
    if isinstance(error, nats.errors.TimeoutError | TimeoutError):
        return "no answer in time"
    if "authorization" in str(error).lower() or "authentication" in str(error).lower():
        return "the credentials were refused"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return f"{type(error).__name__}"


EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
"""The last sequence of the message's own subject, before this batch."""

EXPECTED_SUBJECT: Final = EXPECTED + "-Subject"
"""The subject that EXPECTED is about, where it is not the message's own."""

_BATCH: Final = "Nats-Batch-Id"
_NUMBER: Final = "Nats-Batch-Sequence"
_COMMIT: Final = "Nats-Batch-Commit"


@dataclass(slots=True)
class Outgoing:
    """A message to store. ``headers`` may still be added to."""

    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def size(self) -> int:
        """About its bytes on the way."""
        return len(self.payload) + sum(map(len, self.headers.values())) + 256


def outgoing(subject: str, headers: Mapping[str, str], payload: bytes) -> Outgoing:
    """A message whose headers are its own."""
    return Outgoing(subject, dict(headers), payload)


async def send(link: ServerLink, messages: Sequence[Outgoing]) -> int:
    """Store all messages or none, and return the sequence of the first.

    Raises ApiError if the servers refuse, so that nothing is stored, and one of ``DOUBTS`` when the
    outcome is unknown. A message that expects a sequence makes it safe to send them again.
    """
    client = link.client
    last = messages[-1]
    if len(messages) == 1:
        answer = await client.request(
            last.subject, last.payload, timeout=ATTEMPT_SECONDS, headers=last.headers or None
        )
        return int(check_answer(answer)["seq"])
    batch = uuid4().hex
    for number, message in enumerate(messages[:-1], 1):
        headers = {_BATCH: batch, _NUMBER: str(number), **message.headers}
        await client.publish(message.subject, message.payload, headers=headers)
    headers = {_BATCH: batch, _NUMBER: str(len(messages)), _COMMIT: "1", **last.headers}
    answer = await client.request(
        last.subject, last.payload, timeout=ATTEMPT_SECONDS, headers=headers
    )
    return int(check_answer(answer)["seq"]) - len(messages) + 1
