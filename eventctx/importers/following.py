"""Following files and folders: sessions that are being written appear and grow in a store.

Changes are noticed by looking: size, time and inode of each file, which any file system answers.
Files that changed lately are looked at every ``INTERVAL``, all others, and new ones, every
``SEARCH`` or at ten times the duration of a search. An import of a file of JSON Lines stays open,
and reads on what is written (``load.follow_file``); other files are read anew.
"""

from __future__ import annotations

import asyncio
from asyncio import Event, Task
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from typing import Final

import msgspec

from eventctx.errors import EventctxError, WrongExpectedVersion
from eventctx.importers.found import Candidate, FileState, find, state_of
from eventctx.importers.known_files import KnownFiles
from eventctx.importers.load import ENDS_ALL, ImportSummary, follow_file
from eventctx.importers.many import (
    FilePassedOver,
    ImportedPaths,
    Told,
    passed_over_for,
    result_of,
)
from eventctx.log.store import EventStore, StreamInfo

INTERVAL: Final = 0.25
"""Seconds between two looks at the files that changed lately."""

SEARCH: Final = 0.5
"""Seconds between two searches of the folders, at least."""

QUIET: Final = 600.0
"""Seconds without a change after which an import is closed, and its memory given back."""

PATIENCE: Final = 3.0
"""Seconds without a change before a file is said to be passed over: it may be half written."""

_SEARCH_SHARE: Final = 10
_READING_SHARE: Final = 3
_SAVE: Final = 2.0
_MOST_OPEN: Final = 64
_GRACE: Final = 10.0


class _Followed:
    """A candidate: its files as last seen and as last read, and the import that reads them."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.files: tuple[FileState, ...] = ()
        self.read: tuple[FileState, ...] = ()
        self.lately = False
        self.changed = 0.0
        self.dirty = False
        self.began = 0.0
        self.not_before = 0.0
        self.task: Task[None] | None = None
        self.opened = self.paused = False
        self.wake = Event()
        self.base = 0
        self.problems: list[FilePassedOver] = []
        self.agents: dict[str | None, ImportSummary] = {}


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
        format: str | None = None,  # noqa: A002 - the command line's word
        quiet: float = QUIET,
        patience: float = PATIENCE,
    ) -> None:
        self.unchanged = 0
        self._store = store
        self._roots = [Path(path).absolute() for path in paths]
        self._known = known
        self._told = told
        self._format = format
        self._quiet = quiet
        self._patience = patience
        self._followed: dict[Path, _Followed] = {}
        self._sessions: dict[str, ImportSummary] = {}
        self._said: set[tuple[Path, str]] = set()
        self._streams: dict[str, StreamInfo] = {}
        self._next_search = self._next_save = 0.0
        self._ending = False

    @property
    def result(self) -> ImportedPaths:
        """The sessions that were read, each with all its new records, and what was passed over."""
        problems = [one for followed in self._followed.values() for one in followed.problems]
        return ImportedPaths(sessions=tuple(self._sessions.values()), passed_over=tuple(problems))

    async def run(self, stop: Event) -> ImportedPaths:
        """Follow until ``stop`` is set. Raises what ``import_paths`` raises."""
        self._streams = {info.stream: info for info in await self._store.streams()}
        try:
            while not stop.is_set():
                await self._look()
                self._begin()
                self._tell_problems()
                self._save()
                await _until(stop, INTERVAL)
                self._raise_failure()
        finally:
            await self._end()
        return self.result

    # -- noticing --------------------------------------------------------------------------------

    async def _look(self) -> None:
        now = monotonic()
        if now < self._next_search:
            for followed in list(self._followed.values()):
                if followed.lately:
                    followed.lately = now - followed.changed < self._quiet
                    self._see(followed.candidate, state_of(followed.candidate), now)
            return
        found = await asyncio.to_thread(self._search)
        took = monotonic() - now
        self._next_search = now + max(SEARCH, _SEARCH_SHARE * took)
        for candidate in found:
            self._see(candidate, candidate.files, now)

    def _search(self) -> list[Candidate]:
        return [one for root in self._roots for one in find(root)]

    def _see(self, candidate: Candidate, files: tuple[FileState, ...], now: float) -> None:
        followed = self._followed.get(candidate.path)
        if followed is None:
            followed = _Followed(candidate)
            self._followed[candidate.path] = followed
            known = self._known.get(candidate.path, files, self._streams)
            if known is not None:
                followed.files = followed.read = files
                followed.problems = [known.passed_over] if known.passed_over is not None else []
                self.unchanged += 1
                return
            followed.lately = time_ns() - _last_change(files) < self._quiet * 1e9
        elif files == followed.files:
            return
        else:
            followed.lately = True
        followed.candidate = candidate
        followed.files, followed.changed = files, now
        # An empty file is about to be written, and of one that is gone nothing can be read.
        followed.dirty = candidate.error is not None or any(file.size for file in files)
        followed.wake.set()

    # -- importing -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin the imports that are due: what changed lately at once, the rest one by one."""
        now = monotonic()
        due = [
            one
            for one in self._followed.values()
            if one.dirty and one.task is None and now >= one.not_before
        ]
        busy = any(
            one.task is not None and not one.paused and not one.lately
            for one in self._followed.values()
        )
        for one in sorted(due, key=lambda one: _last_change(one.files), reverse=True):
            if one.lately or not busy:
                busy = busy or not one.lately
                one.task = asyncio.create_task(self._import(one))
                one.task.add_done_callback(partial(self._after, one))

    def _after(self, followed: _Followed, task: Task[None]) -> None:
        # A task that failed stays until ``run`` raises its error.
        if not self._ending and not task.cancelled() and task.exception() is None:
            followed.task = None
            self._begin()

    async def _import(self, followed: _Followed) -> None:
        followed.began = monotonic()
        followed.read, followed.dirty, followed.base = followed.files, False, 0
        followed.opened = False
        path = followed.candidate.path
        sessions: dict[str, StreamInfo] = {}
        try:
            if followed.candidate.error is not None:
                raise followed.candidate.error
            more = partial(self._more, followed)
            summaries = await follow_file(self._store, path, more, format=self._format)
            self._tell(followed, summaries, closed=followed.opened)
            for name in [one.session for one in summaries if one.session is not None]:
                info = await self._store.head(name)
                if info is not None:
                    sessions[name] = info
        except ENDS_ALL:
            raise
        except WrongExpectedVersion:
            # Another process imports the same file; what it wrote is found.
            followed.dirty = True
            followed.not_before = monotonic() + INTERVAL
            return
        except EventctxError as error:
            named = followed.candidate.named
            followed.problems = [passed_over_for(path, error, named=named)]
        followed.not_before = monotonic() + _READING_SHARE * (monotonic() - followed.began)
        problem = followed.problems[0] if followed.problems else None
        self._known.note(path, followed.read, sessions, problem)

    async def _more(
        self, followed: _Followed, summaries: list[ImportSummary], same: Callable[[], bool]
    ) -> bool:
        """Tell what is new, and wait for a change of the file; False ends the import."""
        self._tell(followed, summaries)
        busy = monotonic() - followed.began
        followed.not_before = monotonic() + _READING_SHARE * busy
        if not followed.lately or sum(one.paused for one in self._followed.values()) >= _MOST_OPEN:
            return False
        followed.opened = followed.paused = True
        try:
            async with asyncio.timeout(self._quiet):
                while not followed.dirty:
                    if self._ending or not followed.files:
                        return False
                    followed.wake.clear()
                    await followed.wake.wait()
            await asyncio.sleep(max(0.0, followed.not_before - monotonic()))
            if not same():
                return False
            followed.read, followed.dirty = followed.files, False
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
        """Say what was passed over for an error, when its file stands still."""
        now = monotonic()
        for followed in self._followed.values():
            gone = not followed.files and followed.candidate.error is None
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
            if followed.paused or followed.lately:
                followed.wake.set()
            else:
                followed.task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._known.save()


def _last_change(files: tuple[FileState, ...]) -> int:
    return max([file.modified for file in files], default=0)


async def _until(stop: Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
