"""A worker process of an import: it parses and encodes files, and its parent has the store.

The worker runs the same code as an import without workers, on a store whose calls are requests to
the parent (``StoreOfParent``). So every rule of an import holds in a worker too, and one process
alone writes, whatever the store is.

Invariant: a worker is at most as far ahead of the store as its own code waits for appends, since a
request is in the pipe or with the parent, and the pipe takes no more than its buffer. A worker ends
when its parent does: its pipe to or from the parent is closed then. Ctrl-C is for the parent alone.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import struct
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import IO, Any, Final, NamedTuple, NoReturn, Protocol, cast

import msgspec

from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended, EventStore, Expected, Receipt, StreamInfo

HEADER: Final = struct.Struct(">Q")
"""Before each message: the number of its bytes."""

_PROGRESS_SECONDS: Final = 0.1

_drafts: Final = msgspec.msgpack.Decoder(tuple[Draft, ...])
_records: Final = msgspec.msgpack.Decoder(tuple[Record, ...])
_encoder: Final = msgspec.msgpack.Encoder()


class WorkerTask(Protocol):
    """What a worker does with each job: a function of a module, or a ``partial`` of one."""

    def __call__(
        self,
        store: EventStore,
        job: Any,
        *,
        progress: Callable[[int, int], None],
        noted: Callable[[Receipt], None],
    ) -> Awaitable[Any]:
        """The result of a job, which can be pickled, as the job can."""
        ...


# -- messages ------------------------------------------------------------------------------------


class StoreCall(NamedTuple):
    """A call of the store. ``name`` is its method, or ``page``: go on with the read ``number``."""

    number: int
    name: str
    args: tuple[Any, ...] = ()


class StoreAnswer(NamedTuple):
    """The result of the call ``number``, or its error."""

    number: int
    result: Any = None
    error: PackedError | None = None


class NewReceipt(NamedTuple):
    """A receipt for the parent's ``noted``."""

    receipt: Receipt


class BytesRead(NamedTuple):
    """How many bytes of a file were read, and its size."""

    done: int
    size: int


class WorkerReady(NamedTuple):
    """The worker has loaded what it needs for its work."""


class JobEnded(NamedTuple):
    """The end of a job: its result, or the error that it raised."""

    result: Any = None
    error: PackedError | None = None


class PackedError(NamedTuple):
    """An exception on its way to the other process, whatever its constructor takes."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    attributes: dict[str, Any]

    @staticmethod
    def of(error: BaseException) -> PackedError:
        """An exception that cannot be pickled becomes a RuntimeError with its traceback."""
        packed = PackedError(type(error), error.args, dict(vars(error)))
        try:
            unpacked(pickle.dumps(packed))
        except Exception:
            text = "".join(traceback.format_exception(error))
            return PackedError(RuntimeError, (f"in a worker process: {text}",), {})
        return packed

    def error(self) -> BaseException:
        """The exception."""
        made = self.kind.__new__(self.kind, *self.args)
        made.args = self.args
        made.__dict__.update(self.attributes)
        return made


def encode_drafts(drafts: Sequence[Draft]) -> bytes:
    """MessagePack: much cheaper for many small structs than pickling each."""
    return _encoder.encode(drafts)


def decode_drafts(data: bytes) -> Sequence[Draft]:
    """See ``encode_drafts``."""
    return _drafts.decode(data)


def encode_records(records: Sequence[Record]) -> bytes:
    """See ``encode_drafts``."""
    return _encoder.encode(records)


def framed(message: object) -> bytes:
    """The bytes of a message in the pipe."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(data)) + data


def unpacked(data: bytes) -> Any:
    """A message. Both ends of the pipe are ours: a process, and one that it started."""
    return pickle.loads(data)  # noqa: S301 - nobody else writes to the pipe


class ParentPipe:
    """The worker's end of the pipe. It blocks: a worker has nothing else to do meanwhile."""

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source = source
        self._target = target

    def send(self, message: object) -> None:
        """Send a message; the process ends if the parent has."""
        try:
            self._target.write(framed(message))
            self._target.flush()
        except OSError:
            _end_without_parent()

    def receive(self) -> Any:
        """The next message; the process ends if the parent has."""
        try:
            header = self._source.read(HEADER.size)
            if len(header) == HEADER.size:
                (size,) = HEADER.unpack(header)
                data = self._source.read(size)
                if len(data) == size:
                    return unpacked(data)
        except OSError:
            pass
        return _end_without_parent()


def _end_without_parent() -> NoReturn:
    # An exception would be taken for one of the file's, and be handled by the importer.
    os._exit(1)


# -- the store -----------------------------------------------------------------------------------


class _Answer:
    """An answer to wait for. Unlike a coroutine, it may also be left alone."""

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take

    def __await__(self) -> Generator[None, None, Any]:
        return self._take()
        yield  # never reached: it makes this a generator, as ``await`` needs one


class StoreOfParent:
    """The part of ``EventStore`` that imports use; each call is a request to the parent.

    An append gives the receipt and no records.
    """

    def __init__(self, pipe: ParentPipe) -> None:
        self._pipe = pipe
        self._number = 0
        self._answers: dict[int, StoreAnswer] = {}

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        """See ``EventStore.append``."""
        number = self._ask("append", stream, encode_drafts(drafts), expected)
        return cast(
            Awaitable[Appended], _Answer(lambda: Appended((), cast(Receipt, self._take(number))))
        )

    async def read(
        self,
        stream: str,
        *,
        start: int = 0,
        stop: int | None = None,
        bodies: bool = True,
    ) -> AsyncIterator[Record]:
        """See ``EventStore.read``."""
        read = self._ask("read", stream, start, stop, bodies)
        page = self._take(read)
        while page is not None:
            for record in _records.decode(page):
                yield record
            page = self._take(self._ask("page", read))

    async def head(self, stream: str) -> StreamInfo | None:
        """See ``EventStore.head``."""
        return cast(StreamInfo | None, self._take(self._ask("head", stream)))

    def forget(self) -> None:
        """Drop the answers for which a job that failed did not wait."""
        self._answers.clear()

    def _ask(self, name: str, *args: Any) -> int:
        self._number += 1
        self._pipe.send(StoreCall(self._number, name, args))
        return self._number

    def _take(self, number: int) -> Any:
        """Wait for the answer of a call. Raises its error."""
        while number not in self._answers:
            answered: StoreAnswer = self._pipe.receive()
            self._answers[answered.number] = answered
        answered = self._answers.pop(number)
        if answered.error is not None:
            raise answered.error.error()
        return answered.result


# -- the process ---------------------------------------------------------------------------------


def main() -> None:
    """Do jobs until the parent has no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = _own_pipe()
    work: WorkerTask = pipe.receive()
    pipe.send(WorkerReady())
    asyncio.run(_serve(pipe, work))


def _own_pipe() -> ParentPipe:
    """Standard input and output are the pipe, which nothing that prints may reach."""
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return ParentPipe(source, target)


async def _serve(pipe: ParentPipe, work: WorkerTask) -> None:
    store = StoreOfParent(pipe)

    def noted(receipt: Receipt) -> None:
        pipe.send(NewReceipt(receipt))

    while (job := pipe.receive()) is not None:
        try:
            result = await work(cast(EventStore, store), job, progress=_progress(pipe), noted=noted)
            ended = JobEnded(result)
        except Exception as error:
            ended = JobEnded(error=PackedError.of(error))
        pipe.send(ended)
        store.forget()


def _progress(pipe: ParentPipe) -> Callable[[int, int], None]:
    """Sends progress as often as a person can see it."""
    last = 0.0

    def progress(done: int, size: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_SECONDS or done == size:
            last = now
            pipe.send(BytesRead(done, size))

    return progress


def command() -> list[str]:
    """The command that starts a worker, with the modules that this process finds."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    return [sys.executable, "-c", program]
