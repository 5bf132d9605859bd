"""Following files and folders: sessions that are being written appear and grow in a store.

What changes is noticed by looking (``lookout.py``). An import of a file of JSON Lines stays open,
and reads on what is written (``load.follow_file``); other files are read anew. How a file was when
its import ended is remembered next to the store (``known_files.py``).
"""

from __future__ import annotations

import asyncio
from asyncio import Event, Task
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from eventctx.errors import EventctxError, WrongExpectedVersion
from eventctx.importers.detect import passed_over
from eventctx.importers.found import ChangedFile, FileState, FolderWatcher
from eventctx.importers.known_files import KnownFiles
from eventctx.importers.load import ENDS_ALL, ImportSummary, follow_file
from eventctx.importers.many import (
    CLOSED_ON_PURPOSE,
    FilePassedOver,
    ImportedPaths,
    ImportTotal,
    Told,
    passed_over_for,
    result_of,
)
from eventctx.log.store import EventStore, Receipt, StreamInfo

INTERVAL: Final = 0.25
"""Seconds between two looks at the files that changed lately."""

QUIET: Final = 600.0
"""Seconds without a change after which an import is closed, and its memory given back."""

PATIENCE: Final = 3.0
"""Seconds without a change before a file is said to be passed over: it may be half written."""

_READING_SHARE: Final = 3
_SAVE: Final = 2.0
_MOST_OPEN: Final = 64
_AT_ONCE: Final = 4
"""Old files that are read at the same time, since each waits for the disk most of the time."""
_GRACE: Final = 10.0


class _Followed:
    """A transcript: as it was last seen and last read, and the import that reads it.

    ``began`` is the start of the present reading, ``first`` the duration of the first one, which
    was from the start of the file. ``base`` are the records that were told of.
    """

    def __init__(self, seen: ChangedFile) -> None:
        self.seen = seen
        self.read: tuple[FileState, ...] = ()
        self.changed = 0.0
        self.dirty = False
        self.began = self.first = 0.0
        self.not_before = 0.0
        self.task: Task[None] | None = None
        self.opened = self.paused = False
        self.wake = Event()
        self.base = 0
        self.problems: list[FilePassedOver] = []
        self.agents: dict[str | None, ImportSummary] = {}


class WatchLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a line tells: ``kind`` is the name of its other key.

    The first has the paths; then comes each session that grew and each file that became none, as
    ``import`` prints them; the last has the sums, and the number of files in which nothing was new.
    """

    kind: Literal["watching", "session", "passed_over", "total"]
    watching: Sequence[Path] | UnsetType = UNSET
    session: ImportSummary | UnsetType = UNSET
    passed_over: FilePassedOver | UnsetType = UNSET
    total: ImportTotal | UnsetType = UNSET
    unchanged: int | UnsetType = UNSET


def line_of(result: ImportSummary | FilePassedOver) -> WatchLine:
    """The line about a session that grew, or about a file that became none."""
    if isinstance(result, ImportSummary):
        return WatchLine(kind="session", session=result)
    return WatchLine(kind="passed_over", passed_over=result)


class Follower:
    """Imports what is under ``paths``, then what changes there, until ``run`` is stopped.

    ``told`` gets a summary whenever a session grew, with ``added`` for the new records, and each
    file that is passed over for an error, once.
    """

    def __init__(
        self,
        store: EventStore,
        paths: Iterable[str | Path],
        *,
        known: KnownFiles,
        told: Told,
        noted: Callable[[Receipt], None] | None = None,
        format: str | None = None,  # noqa: A002 - the command line's word
        quiet: float = QUIET,
        patience: float = PATIENCE,
    ) -> None:
        self.unchanged = 0
        self._store = store
        self._lookout = FolderWatcher(paths, quiet)
        self._known = known
        self._told = told
        self._noted = noted
        self._format = format
        self._quiet = quiet
        self._patience = patience
        self._followed: dict[Path, _Followed] = {}
        self._hot: set[_Followed] = set()
        self._cold: list[_Followed] = []
        self._reading: set[_Followed] = set()
        self._sessions: dict[str, ImportSummary] = {}
        self._said: set[tuple[Path, str]] = set()
        self._next_save = 0.0
        self._ending = False

    @property
    def result(self) -> ImportedPaths:
        """The sessions that were read, each with all its new records, and what was passed over."""
        problems = [one for followed in self._followed.values() for one in followed.problems]
        return ImportedPaths(sessions=tuple(self._sessions.values()), passed_over=tuple(problems))

    async def run(self, stop: Event) -> ImportedPaths:
        """Follow until ``stop`` is set. Raises what ``import_paths`` raises."""
        try:
            while not stop.is_set():
                if changes := await self._lookout.look():
                    for seen in changes:
                        await self._notice(seen)
                    self._cold.sort(key=lambda one: one.seen.modified)
                self._begin()
                self._tell_problems()
                self._save()
                await _until(stop, INTERVAL)
                self._raise_failure()
        finally:
            await self._end()
        return self.result

    # -- noticing --------------------------------------------------------------------------------

    async def _notice(self, seen: ChangedFile) -> None:
        followed = self._followed.get(seen.path)
        if followed is None:
            followed = self._followed[seen.path] = _Followed(seen)
            known = await self._known.get(seen.path, seen.files, self._store)
            if known is not None and not known.may_be_read_now:
                followed.read = seen.files
                followed.problems = [known.passed_over] if known.passed_over is not None else []
                self.unchanged += 1
                return
        followed.seen, followed.changed = seen, monotonic()
        # An empty file is about to be written, and of one that is gone nothing can be read.
        followed.dirty = seen.error is not None or any(file.size for file in seen.files)
        if not seen.files and seen.error is None:
            followed.problems = []
        if seen.lately:
            self._hot.add(followed)
        else:
            self._cold.append(followed)
        followed.wake.set()

    # -- importing -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin the imports that are due: what changed lately at once, the rest some at a time."""
        now = monotonic()
        for one in list(self._hot):
            if not one.dirty:
                self._hot.discard(one)
            elif one.task is None and now >= one.not_before:
                self._hot.discard(one)
                self._start(one)
        while len(self._reading) < _AT_ONCE and self._cold:
            newest = self._cold.pop()
            if newest.dirty and newest.task is None:
                self._reading.add(newest)
                self._start(newest)

    def _start(self, followed: _Followed) -> None:
        followed.task = asyncio.create_task(self._import(followed))
        followed.task.add_done_callback(partial(self._after, followed))

    def _after(self, followed: _Followed, task: Task[None]) -> None:
        if self._ending or task.cancelled() or task.exception() is not None:
            return  # a task that failed stays until ``run`` raises its error
        followed.task = None
        if followed.dirty:
            self._hot.add(followed)
        if followed in self._reading:
            self._reading.discard(followed)
            self._begin()

    async def _import(self, followed: _Followed) -> None:
        followed.began = monotonic()
        followed.read, followed.dirty, followed.base = followed.seen.files, False, 0
        followed.opened = False
        path = followed.seen.path
        followed.first = 0.0
        sessions: dict[str, StreamInfo] = {}
        try:
            if followed.seen.error is not None:
                raise followed.seen.error
            reason = None if followed.seen.named else passed_over(path)
            if reason is not None:
                followed.problems = [FilePassedOver(path=path, reason=reason)]
                return
            more = partial(self._more, followed)
            summaries = await follow_file(
                self._store, path, more, format=self._format, noted=self._noted
            )
            self._tell(followed, summaries, closed=followed.opened)
            sessions = await self._heads([one.session for one in summaries])
        except ENDS_ALL:
            raise
        except WrongExpectedVersion:
            # Another process imports the same file; what it wrote is found.
            followed.dirty = True
            followed.not_before = monotonic() + INTERVAL
            return
        except EventctxError as error:
            followed.problems = [passed_over_for(path, error, named=followed.seen.named)]
            if isinstance(error, CLOSED_ON_PURPOSE):
                sessions = await self._heads([error.stream])  # in another store it may be imported
        took = max(followed.first, monotonic() - followed.began)
        followed.not_before = monotonic() + _READING_SHARE * took
        problem = followed.problems[0] if followed.problems else None
        self._known.note(path, followed.read, sessions, problem)

    async def _heads(self, names: Iterable[str | None]) -> dict[str, StreamInfo]:
        found = [await self._store.head(name) for name in names if name is not None]
        return {info.stream: info for info in found if info is not None}

    async def _more(
        self, followed: _Followed, summaries: list[ImportSummary], same: Callable[[], bool]
    ) -> bool:
        """Tell what is new, and wait for a change of the file; False ends the import."""
        self._tell(followed, summaries)
        busy = monotonic() - followed.began
        if followed.opened:
            followed.not_before = monotonic() + _READING_SHARE * busy
        else:
            # To read on costs what is new, to read anew costs this.
            followed.first, followed.not_before = busy, 0.0
        followed.opened = True
        open_ones = sum(one.paused for one in self._followed.values())
        if not followed.seen.lately or open_ones >= _MOST_OPEN:
            return False
        followed.paused = True
        try:
            async with asyncio.timeout(self._quiet):
                while not followed.dirty:
                    if self._ending or not followed.seen.files:
                        return False
                    followed.wake.clear()
                    await followed.wake.wait()
            await asyncio.sleep(max(0.0, followed.not_before - monotonic()))
            if not same():
                return False
            followed.read, followed.dirty = followed.seen.files, False
            return True
        except TimeoutError:
            return False
        finally:
            followed.paused = False
            followed.began = monotonic()

    # -- telling ---------------------------------------------------------------------------------

    def _tell(
        self, followed: _Followed, summaries: list[ImportSummary], *, closed: bool = False
    ) -> None:
        """Count what is new, and tell it, but for what the end of an open import adds."""
        followed.problems = []
        for place, summary in enumerate(summaries):
            result = result_of(summary)
            if isinstance(result, FilePassedOver):
                followed.problems.append(result)
                continue
            added = summary.added
            if place == 0:
                added, followed.base = added - followed.base, added
            elif followed.agents.get(summary.session) is summary:
                continue  # it was not read again
            else:
                followed.agents[summary.session] = summary
            name = summary.session or ""
            before = self._sessions[name].added if name in self._sessions else 0
            self._sessions[name] = msgspec.structs.replace(summary, added=before + added)
            if added and not closed:
                self._told(msgspec.structs.replace(summary, added=added))

    def _tell_problems(self) -> None:
        """Say what was passed over for an error, when its file no longer changes."""
        now = monotonic()
        for followed in self._followed.values():
            gone = not followed.seen.files and followed.seen.error is None
            if not followed.problems or gone or now - followed.changed < self._patience:
                continue
            for problem in followed.problems:
                if problem.error is not None and (problem.path, problem.reason) not in self._said:
                    self._said.add((problem.path, problem.reason))
                    self._told(problem)

    # -- the end ---------------------------------------------------------------------------------

    def _raise_failure(self) -> None:
        for followed in self._followed.values():
            task = followed.task
            if task is not None and task.done():
                followed.task = None
                task.result()

    def _save(self) -> None:
        if monotonic() >= self._next_save:
            self._next_save = monotonic() + _SAVE
            self._known.save()

    async def _end(self) -> None:
        """Close what is open, as the end of any import does; what is being read is broken off."""
        self._ending = True
        tasks = []
        for followed in self._followed.values():
            if followed.task is None:
                continue
            tasks.append(followed.task)
            if followed.paused or followed.seen.lately:
                followed.wake.set()
            else:
                followed.task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._known.save()
        for task in tasks:
            if not task.cancelled():
                task.result()


async def _until(stop: Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
