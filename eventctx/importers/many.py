"""Importing many files: one that cannot be read is passed over, and named with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

import msgspec

from eventctx.errors import (
    EventctxError,
    NotATranscript,
    SessionWasDeleted,
    SessionWasTakenOver,
    WorkerEnded,
    WrongExpectedVersion,
)
from eventctx.importers.detect import passed_over
from eventctx.importers.formats.amplifier import CONTEXT
from eventctx.importers.found import Candidate, FileState, check_folder, find
from eventctx.importers.load import ENDS_ALL, ImportSummary, import_file
from eventctx.importers.source.source import Progress
from eventctx.importers.workers import ImportJob, WorkerPool
from eventctx.log.arguments import check_number
from eventctx.log.store import EventStore, Receipt, StreamInfo


class FilePassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A file that became no session, and why.

    ``error`` names the exception's class. It is None where nothing is wrong: a search met
    the file, and it is no transcript, or its session was taken over or deleted; or it holds nothing
    to import yet.
    """

    path: Path
    reason: str
    error: str | None = None


class ImportTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over an import: of all sessions' records, not only new ones, but for ``added``.

    ``sessions`` counts names: two files of one session count once. ``failed`` counts the files
    among the ``passed_over`` that have an error. ``bytes`` are those of the imported files.
    """

    sessions: int = 0
    added: int = 0
    messages: int = 0
    turns: int = 0
    calls: int = 0
    compactions: int = 0
    observed: int = 0
    warned: int = 0
    passed_over: int = 0
    failed: int = 0
    bytes: int = 0


class ImportAnswer(msgspec.Struct, frozen=True):
    """The sessions of an import, the files that became none, and the sums."""

    sessions: tuple[ImportSummary, ...]
    passed_over: tuple[FilePassedOver, ...]
    total: ImportTotal


class ImportedPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import of many files: a summary of each session, and what was left out."""

    sessions: tuple[ImportSummary, ...]
    passed_over: tuple[FilePassedOver, ...]

    def answer(self) -> ImportAnswer:
        """The result with its sums."""
        return ImportAnswer(self.sessions, self.passed_over, self.total)

    @property
    def total(self) -> ImportTotal:
        """The sums."""
        last = {summary.session: summary for summary in self.sessions}
        return ImportTotal(
            sessions=len(last),
            added=sum([one.added for one in self.sessions]),
            messages=sum([one.messages for one in last.values()]),
            turns=sum([one.turns for one in last.values()]),
            calls=sum([one.calls for one in last.values()]),
            compactions=sum([one.compactions for one in last.values()]),
            observed=sum([one.observed for one in last.values()]),
            warned=sum([one.warned for one in self.sessions]),
            passed_over=len(self.passed_over),
            failed=sum([one.error is not None for one in self.passed_over]),
            bytes=sum([one.bytes for one in self.sessions]),
        )


CLOSED_ON_PURPOSE: Final = (SessionWasTakenOver, SessionWasDeleted)
"""The errors of a session that somebody closed to its file on purpose; nothing is wrong with it."""


class ImportOne(Protocol):
    """Imports the sessions of one path, as ``import_file`` does."""

    def __call__(
        self,
        store: EventStore,
        path: Path,
        *,
        progress: Progress | None,
        noted: Callable[[Receipt], None] | None,
    ) -> Awaitable[Sequence[ImportSummary]]:
        """The summaries of the sessions."""
        ...


Told = Callable[[ImportSummary | FilePassedOver], None]
"""Called with each result as soon as there is one."""

Shown = Callable[[Path], AbstractContextManager[Progress]]
"""Shows the progress of the import of a file: of the first one that is not done."""

WORTH_WORKERS: Final = 32 << 20
"""Bytes of files from which on workers save time.

A worker loads for a third of a second, in which one process alone reads 8 MB.
"""


class FileIndex(Protocol):
    """The files that were read before, and what became of them (``KnownFiles``)."""

    async def summaries(
        self, path: Path, files: tuple[FileState, ...], store: EventStore
    ) -> tuple[ImportSummary, ...]:
        """What another import of these files would give; nothing if they are to be read."""

    async def note_read(
        self,
        path: Path,
        files: tuple[FileState, ...],
        sessions: dict[str, StreamInfo],
        results: Sequence[ImportSummary | FilePassedOver],
        *,
        plainly: bool,
    ) -> None:
        """Note the outcome of an import that has read these files to their ends.

        ``plainly``: another import without options makes the same of them.
        """


async def import_paths(
    store: EventStore,
    paths: Iterable[str | Path],
    *,
    complete: bool = False,
    take_over: bool = False,
    importing: ImportOne | None = None,
    told: Told | None = None,
    shown: Shown | None = None,
    index: FileIndex | None = None,
    read_again: bool = False,
    noted: Callable[[Receipt], None] | None = None,
    workers: int = 1,
    workers_from: int = WORTH_WORKERS,
) -> ImportedPaths:
    """Import files, and all transcripts in folders; an error of one file does not end the others.

    ``complete``, ``take_over`` and ``noted`` are those of ``import_file``; ``importing`` takes its
    place, for other options. A file that is in the ``index`` and has not changed is not read, but
    with ``read_again``, as options need it that make something else of the same file.

    With ``workers`` above 1, so many further processes read the files, where these are more than
    one and have ``workers_from`` bytes; this process writes what they hand over. The results are
    the same and in the same order, as are the records of each session. ``importing`` is a function
    of a module then, or a ``partial`` of one. A file whose worker ends is passed over.

    Raises StoreUnavailable, NotAStore and StoreTooNew: without the store no other file can be
    imported. What was imported before stays. Raises InvalidSetting for a folder with more than
    ``MOST_ENTRIES`` files, and for a number of workers that is none.
    """
    check_number("workers", workers)
    importing = importing or partial(_import_plainly, complete=complete, take_over=take_over)
    read = partial(_read_file, importing=importing, take_over=take_over, indexed=index is not None)
    one = _ImportOfOne(store, read, index, read_again, shown, noted)
    sessions: list[ImportSummary] = []
    left_out: list[FilePassedOver] = []
    async with AsyncExitStack() as stack:
        plan: Iterable[_Planned] = map(_Planned, _candidates(paths, take_over))
        if workers > 1:
            plan = await one.plan(plan, workers_from)
            jobs = [planned.job for planned in plan if planned.job is not None]
            pool = WorkerPool(store, read, jobs, workers, noted or _drop)
            await stack.enter_async_context(pool)
        for planned in plan:
            for result in await one.results(planned):
                if isinstance(result, FilePassedOver):
                    left_out.append(result)
                else:
                    sessions.append(result)
                if told is not None:
                    told(result)
    return ImportedPaths(sessions=tuple(sessions), passed_over=tuple(left_out))


class _FileRead(NamedTuple):
    """The outcome of an import of a file, and the ends of its sessions for the index."""

    results: list[ImportSummary | FilePassedOver]
    heads: dict[str, StreamInfo]


class _Planned(NamedTuple):
    """A file to import, and who reads it.

    ``job`` is that of a worker, ``known`` what the index said of the file before any was read; both
    are None where that is decided when it is the file's turn.
    """

    found: Candidate
    job: ImportJob | None = None
    known: Sequence[ImportSummary] | None = None


class _ImportOfOne:
    """Imports each file of an import, as its options say."""

    def __init__(
        self,
        store: EventStore,
        read: partial[Coroutine[None, None, _FileRead]],
        index: FileIndex | None,
        read_again: bool,
        shown: Shown | None,
        noted: Callable[[Receipt], None] | None,
    ) -> None:
        self._store = store
        self._read = read
        self._index = index
        self._read_again = read_again
        self._shown = shown
        self._noted = noted
        self._none_was_read = True
        self._jobs: list[ImportJob] = []

    async def plan(self, files: Iterable[_Planned], workers_from: int) -> list[_Planned]:
        """A job for each file that is to be read; none where workers are not worth their start."""
        plan = []
        jobs = size = 0
        for found, _, _ in files:
            known = await self._look_up(found)
            job = None
            if not known and found.error is None:
                job = ImportJob(found.path, found)
                jobs += 1
                size += sum([file.size for file in found.files])
            plan.append(_Planned(found, job, known))
        if jobs < 2 or size < workers_from:
            return [planned._replace(job=None) for planned in plan]
        self._jobs = [planned.job for planned in plan if planned.job is not None]
        return plan

    async def results(self, planned: _Planned) -> Sequence[ImportSummary | FilePassedOver]:
        """Import a file, or wait until a worker has. Raises ``ENDS_ALL``."""
        found, job, known = planned
        if job is None:
            # A file that was read meanwhile may tell the session of this one, too.
            if known is None or not self._none_was_read:
                known = await self._look_up(found)
            if known:
                return known
        self._none_was_read = False
        bar = None if found.error is not None else self._shown
        shown = nullcontext(_drop) if bar is None else bar(found.path)
        with shown as progress:
            done = await _from_worker(job, found, progress)
            if done is not None and _was_overtaken(done.results):
                await asyncio.wait([one.result for one in self._jobs])
                done = None
            if done is None:
                done = await self._read(self._store, found, progress=progress, noted=self._noted)
        if self._index is not None:
            await self._index.note_read(
                found.path, found.files, done.heads, done.results, plainly=not self._read_again
            )
        return done.results

    async def _look_up(self, found: Candidate) -> Sequence[ImportSummary]:
        """What was made of a file that has not changed, unless another tells its session now."""
        if self._index is None or self._read_again:
            return ()
        known = await self._index.summaries(found.path, found.files, self._store)
        return () if known and not found.named and passed_over(found.path) is not None else known


def _was_overtaken(results: Sequence[ImportSummary | FilePassedOver]) -> bool:
    """Whether a later file appended to a session of this one in the middle of it.

    That happens where a file comes to the session only late, as one of several.
    """
    overtaken = WrongExpectedVersion.__name__
    return any(isinstance(one, FilePassedOver) and one.error == overtaken for one in results)


def _drop(*_: object) -> None:
    """No caller wants to know."""


def _candidates(paths: Iterable[str | Path], take_over: bool) -> Iterator[Candidate]:
    for path in paths:
        check_folder(Path(path))
        found = find(Path(path))
        if take_over:
            # Amplifier's two programs keep one session in two folders; the file with all of its
            # messages comes first, since the session is taken over once.
            yield from sorted(found, key=lambda one: one.path.name != CONTEXT)
        else:
            yield from found


async def _from_worker(
    job: ImportJob | None, found: Candidate, progress: Progress
) -> _FileRead | None:
    """What a worker made of a file; None if this process has to read it."""
    if job is None:
        return None
    job.progress = progress
    try:
        return cast("_FileRead | None", await job.result)
    except WorkerEnded as error:
        return _FileRead([passed_over_for(found.path, error, named=found.named)], {})


async def _import_plainly(
    store: EventStore,
    path: Path,
    *,
    progress: Progress | None,
    noted: Callable[[Receipt], None] | None,
    complete: bool,
    take_over: bool,
) -> Sequence[ImportSummary]:
    return await import_file(
        store, path, complete=complete, take_over=take_over, progress=progress, noted=noted
    )


async def _read_file(
    store: EventStore,
    found: Candidate,
    *,
    progress: Progress,
    noted: Callable[[Receipt], None] | None,
    importing: ImportOne,
    take_over: bool,
    indexed: bool,
) -> _FileRead:
    """Import a file, or say why it is passed over. It is the work of a worker, too."""
    try:
        if found.error is not None:
            raise found.error
        reason = None if found.named else passed_over(found.path, take_over=take_over)
        if reason is not None:
            return _FileRead([FilePassedOver(path=found.path, reason=reason)], {})
        summaries = await importing(store, found.path, progress=progress, noted=noted)
    except ENDS_ALL:
        raise
    except EventctxError as error:
        return _FileRead([passed_over_for(found.path, error, named=found.named)], {})
    names = [one.session for one in summaries if indexed and one.session]
    heads = {name: info for name in names if (info := await store.head(name))}
    return _FileRead([result_of(one) for one in summaries], heads)


def result_of(summary: ImportSummary) -> ImportSummary | FilePassedOver:
    """A file without a session is passed over: it has a damage, or nothing to import yet."""
    if summary.session is not None:
        return summary
    reason = "; ".join((*summary.waiting, *summary.warnings)) or "nothing to import in it yet"
    return FilePassedOver(path=summary.path, reason=reason, error=summary.error)


def passed_over_for(path: Path, error: EventctxError, *, named: bool) -> FilePassedOver:
    """The report of a file whose import raised ``error``; not ``named`` if a search met it."""
    if isinstance(error, NotATranscript) and not named:
        return FilePassedOver(path=path, reason=f"no transcript: {error.found}")
    if isinstance(error, CLOSED_ON_PURPOSE) and not named:
        return FilePassedOver(path=path, reason=str(error))
    reason = str(error).removeprefix(f"{path}: ").removeprefix(f"{path.name}: ")
    # It may hold a file's name, which may be no UTF-8.
    reason = reason.encode("utf-8", "backslashreplace").decode()
    return FilePassedOver(path=path, reason=reason, error=type(error).__name__)
