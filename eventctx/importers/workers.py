"""Worker processes that parse and encode files, for a parent that alone writes to the store.

A worker is a new Python process on a pipe, neither a fork nor a process of ``multiprocessing``: a
fork copies the locks of the store's threads as they are at that moment; ``spawn`` and
``forkserver`` run the caller's main module once more, and a script without a guard would start
itself. It costs 0.35 s of processor time to load, 42 MB of memory, and 4 ms for each megabyte of a
transcript, of 80 that the import takes.

Invariant: whoever asks the store for one stream does so in the order of the files. A worker that
asks for the first stream of its file waits until every earlier file that is being read has asked
for its first one, and for a stream that an earlier file has asked for until that file is done. So
files of one session give the records that they give one after another. The first file waits for
none, so there is no circle.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from asyncio import Event, Future, StreamReader, StreamWriter, Task
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from eventctx.aio import finish
from eventctx.errors import InvalidSetting, WorkerEnded
from eventctx.importers.worker_process import (
    HEADER,
    BytesRead,
    JobEnded,
    NewReceipt,
    PackedError,
    StoreAnswer,
    StoreCall,
    WorkerTask,
    command,
    decode_drafts,
    encode_records,
    framed,
    unpacked,
)
from eventctx.log.record import Record
from eventctx.log.store import Appended, EventStore, Receipt

_BUFFER: Final = 1 << 20
_LAST_SECONDS: Final = 1.0
_PAGE_RECORDS: Final = 256
_PAGE_BYTES: Final = 1 << 20

MOST_WORKERS: Final = 4
"""Workers that one writer keeps up with: it takes a quarter of the time of a reader."""


def useful_workers() -> int:
    """As many workers as this process may use cores, up to ``MOST_WORKERS``."""
    own = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if own is None else len(own(0))
    return min(cores, MOST_WORKERS)


class ImportJob:
    """A file for a worker, and the streams that it has asked for.

    ``progress`` is called with the bytes that were read, and the file's size.
    """

    def __init__(self, path: Path, given: object) -> None:
        self.path = path
        self.given = given
        self.progress: Callable[[int, int], None] = lambda done, size: None
        self.result: Future[Any] = asyncio.get_running_loop().create_future()
        self._asked: set[str] = set()
        self._began = Event()
        self._over = Event()

    @property
    def is_over(self) -> bool:
        """Whether the file is done, and all that its worker appended is in the store."""
        return self._over.is_set()

    async def ask_for(self, stream: str, earlier: Sequence[ImportJob]) -> None:
        """Wait until it is this file's turn to ask the store for a stream."""
        while stream not in self._asked:
            obstacle = self._obstacle(stream, earlier)
            if obstacle is None:
                self._asked.add(stream)
                self._began.set()
            else:
                await obstacle.wait()

    def _obstacle(self, stream: str, earlier: Sequence[ImportJob]) -> Event | None:
        for job in earlier:
            if not self._asked and not job._began.is_set():
                return job._began
            if stream in job._asked and not job.is_over:
                return job._over
        return None

    def settle(self, result: Any, error: BaseException | None = None) -> None:
        """Set the result, or the error, unless its reader was cancelled."""
        if self.result.done():
            return
        if error is None:
            self.result.set_result(result)
        else:
            self.result.set_exception(error)

    def end(self) -> None:
        """Note that the file is done."""
        self._began.set()
        self._over.set()


class WorkerPool:
    """Reads ``jobs`` in ``count`` workers; their results are futures of the jobs.

    A result is None where no worker can be started; it may also be WorkerEnded, or what the job
    raised. Used by ``async with``, at the end of which all workers end. Raises InvalidSetting for
    ``work`` that cannot be sent to a worker.
    """

    def __init__(
        self,
        store: EventStore,
        work: WorkerTask,
        jobs: Iterable[ImportJob],
        count: int,
        noted: Callable[[Receipt], None],
    ) -> None:
        self._store = store
        self._noted = noted
        self._jobs = list(jobs)
        self._waiting = deque(self._jobs)
        self._read: list[ImportJob] = []
        self._count = min(count, len(self._jobs))
        self._tasks: list[Task[None]] = []
        try:
            self._work = framed(work)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidSetting(
                "importing: expected a function of a module, or a partial of one, which a worker "
                f"process can import, found another ({error}); or import with workers=1"
            ) from error

    async def __aenter__(self) -> WorkerPool:
        self._tasks = [asyncio.create_task(self._serve()) for _ in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job in self._jobs:
            if job.result.done() and not job.result.cancelled():
                job.result.exception()  # it may be that nobody asked for it

    async def _serve(self) -> None:
        """Give one worker job after job, and another one the rest if it ends."""
        worker: _Worker | None = None
        try:
            worker = await _start(self._work)
            while worker is not None and self._waiting:
                job = self._waiting.popleft()
                earlier = [one for one in self._read if not one.is_over]
                self._read = [*earlier, job]
                if not await _Service(self._store, worker, job, earlier, self._noted).run():
                    await worker.end()
                    worker = await _start(self._work) if self._waiting else None
        finally:
            self._count -= 1
            if self._count == 0:
                for job in self._waiting:
                    job.settle(None)
            if worker is not None:
                await worker.end()


class _Service:
    """One job of a worker: its requests to the store, until it is done or the worker ended."""

    def __init__(
        self,
        store: EventStore,
        worker: _Worker,
        job: ImportJob,
        earlier: list[ImportJob],
        noted: Callable[[Receipt], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._job = job
        self._earlier = earlier
        self._noted = noted
        self._reads: dict[int, AsyncIterator[Record]] = {}
        self._appends: set[Task[None]] = set()

    async def run(self) -> bool:
        """Serve the job to its end; returns whether the worker can take another one."""
        ended = JobEnded()
        try:
            ended = await self._serve()
            if self._appends:  # for which a job that failed did not wait
                await asyncio.wait(self._appends)
        except Exception as error:
            ended = JobEnded(error=PackedError.of(error))
            raise
        finally:
            for task in self._appends:
                task.cancel()
            self._settle(ended)
            self._job.end()
        return ended.error is None or not issubclass(ended.error.kind, MemoryError | WorkerEnded)

    def _settle(self, ended: JobEnded) -> None:
        error = None if ended.error is None else ended.error.error()
        if isinstance(error, MemoryError):
            error = WorkerEnded(self._job.path.name, "it got no more memory")
        self._job.settle(ended.result, error)

    async def _serve(self) -> JobEnded:
        self._worker.send(self._job.given)
        while True:
            message = await self._worker.receive()
            match message:
                case StoreCall():
                    await self._ask(message)
                case BytesRead():
                    self._job.progress(message.done, message.size)
                case NewReceipt():
                    self._noted(message.receipt)
                case JobEnded():
                    return message
                case _:
                    how = await self._worker.ended()
                    return JobEnded(error=PackedError.of(WorkerEnded(self._job.path.name, how)))

    async def _ask(self, asked: StoreCall) -> None:
        number, name, args = asked
        # Appends are called in their order, and awaited apart: more than one may be under way.
        if name == "page":
            (read,) = args
            await self._answer(number, self._page(read))
            return
        stream = args[0]
        await self._job.ask_for(stream, self._earlier)
        if name == "append":
            _, drafts, expected = args
            appended = self._store.append(stream, decode_drafts(drafts), expected)
            task = asyncio.create_task(self._answer(number, _receipt(appended)))
            self._appends.add(task)
            task.add_done_callback(self._appends.discard)
        elif name == "read":
            _, start, stop, bodies = args
            found = self._store.read(stream, start=start, stop=stop, bodies=bodies)
            self._reads[number] = found
            await self._answer(number, self._page(number))
        else:
            await self._answer(number, self._store.head(stream))

    async def _answer(self, number: int, awaited: Awaitable[Any]) -> None:
        try:
            answered = StoreAnswer(number, await awaited)
        except Exception as error:
            answered = StoreAnswer(number, error=PackedError.of(error))
        self._worker.send(answered)

    async def _page(self, read: int) -> bytes | None:
        """The next records of a read, as they are sent; None at its end."""
        records: list[Record] = []
        size = 0
        async for record in self._reads[read]:
            records.append(record)
            size += len(record.payload) + sum([len(body.data or b"") for body in record.bodies])
            if len(records) >= _PAGE_RECORDS or size >= _PAGE_BYTES:
                break
        return encode_records(records) if records else None


async def _receipt(appended: Awaitable[Appended]) -> Receipt:
    return (await appended).receipt


# -- the processes -------------------------------------------------------------------------------


class _Worker:
    """A worker process, and the parent's end of its pipe."""

    def __init__(self, process: Process, source: StreamReader, target: StreamWriter) -> None:
        self._process = process
        self._source = source
        self._target = target

    def send(self, message: object) -> None:
        """Send a message. Of a worker that has ended, ``receive`` tells."""
        # Answers are few and short, and a worker waits for each page: nothing piles up here.
        self._target.write(framed(message))

    async def receive(self) -> Any:
        """The next message; None if the worker has ended."""
        try:
            (size,) = HEADER.unpack(await self._source.readexactly(HEADER.size))
            return unpacked(await self._source.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ended(self) -> str:
        """How a process ended that has closed its pipe."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._process.wait()
        await self.end()
        code = self._process.returncode or 0
        names = {one.value: f" {one.name}" for one in signal.Signals}
        return f"exit code {code}" if code >= 0 else f"signal{names.get(-code, f' {-code}')}"

    async def end(self) -> None:
        """End the process, wherever it is: only what it asked of the store was ever kept."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await finish(self._close())

    async def _close(self) -> None:
        self._target.close()
        with suppress(ConnectionError):
            while await self._source.read(_BUFFER):
                pass  # a pipe with something in it stays open
        await self._process.wait()


async def _start(work: bytes) -> _Worker | None:
    """Start a worker; None where that is not possible, and this process has to read."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return None  # the executable is the program of somebody, which takes no code
    # Ctrl-C reaches all processes of a group, and the parent alone is to hear it.
    own_group: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
    try:
        process = await asyncio.create_subprocess_exec(
            *command(), stdin=PIPE, stdout=PIPE, limit=_BUFFER, **own_group
        )
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        return None  # no memory, or a loop that starts no processes
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    worker = _Worker(process, process.stdout, process.stdin)
    process.stdin.write(work)
    try:
        ready = await worker.receive()
    except BaseException:
        await worker.end()
        raise
    if ready is None:
        await worker.end()
        return None
    return worker
