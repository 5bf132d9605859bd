"""Noticing that files change: by looking, as any file system answers that.

Size, time of the last change and inode of each file are compared with those of the last look. Files
that changed lately are looked at every time; all others, and new ones, are searched for every
``SEARCH`` seconds, or at ten times the duration of a search where there are very many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, time_ns
from typing import Final, NamedTuple

from eventctx.errors import UnreadableFile
from eventctx.importers.found import FileState, FoundFiles, files_of, search

SEARCH: Final = 0.5
"""Seconds between two searches of the folders, at least."""

_SHARE: Final = 10


class ChangedFile(NamedTuple):
    """A transcript that is new or has changed, and its files; none if it is gone.

    ``error`` is what keeps it from being read. ``lately``: it changed while it was watched, or
    within the time before that in which files count as being written.
    """

    path: Path
    files: tuple[FileState, ...]
    error: UnreadableFile | None
    named: bool
    lately: bool

    @property
    def modified(self) -> int:
        """The last change of a file, in nanoseconds since 1970."""
        return max([file.modified for file in self.files], default=0)


class FolderWatcher:
    """Looks at files and folders. ``quiet``: seconds for which a file counts as being written."""

    def __init__(self, paths: Iterable[str | Path], quiet: float) -> None:
        self._roots = [Path(path).absolute() for path in paths]
        self._quiet = quiet
        self._seen: dict[str, ChangedFile] = {}
        self._lately: dict[str, float] = {}
        self._unreadable: set[str] = set()
        self._next_search = 0.0

    async def look(self) -> list[ChangedFile]:
        """What is new or has changed since the last look."""
        now = monotonic()
        if now < self._next_search:
            return self._look_again(now)
        found = await asyncio.to_thread(self._search)
        took = monotonic() - now
        self._next_search = now + max(SEARCH, _SHARE * took)
        changes = []
        for findings in found:
            for path in (*findings.files, *findings.errors):
                files, error = findings.files.get(path, ()), findings.errors.get(path)
                before = self._seen.get(path)
                if before is None:
                    changes.append(self._meet(path, files, error, findings.named, now))
                elif before.files != files or (before.error is None) != (error is None):
                    changes.append(self._change(path, files, error, now))
        there = {path for findings in found for path in (*findings.files, *findings.errors)}
        for path in self._unreadable - there:
            # A folder that can be searched again, or what is gone, has no error any more.
            self._lately.pop(path, None)
            changes.append(self._seen.pop(path)._replace(files=(), error=None))
        self._unreadable = {path for findings in found for path in findings.errors}
        return changes

    def _search(self) -> list[FoundFiles]:
        return [search(root) for root in self._roots]

    def _look_again(self, now: float) -> list[ChangedFile]:
        changes = []
        for path, changed in list(self._lately.items()):
            if now - changed > self._quiet:
                del self._lately[path]
                continue
            seen = self._seen[path]
            try:
                files = files_of(seen.path)
            except OSError:
                files = ()
            if seen.error is None and files != seen.files:
                changes.append(self._change(path, files, None, now))
        return changes

    def _meet(
        self,
        path: str,
        files: tuple[FileState, ...],
        error: UnreadableFile | None,
        named: bool,
        now: float,
    ) -> ChangedFile:
        seen = ChangedFile(Path(path), files, error, named, lately=False)
        if time_ns() - seen.modified < self._quiet * 1e9:
            seen = seen._replace(lately=True)
            self._lately[path] = now
        self._seen[path] = seen
        return seen

    def _change(
        self,
        path: str,
        files: tuple[FileState, ...],
        error: UnreadableFile | None,
        now: float,
    ) -> ChangedFile:
        self._lately[path] = now
        self._seen[path] = self._seen[path]._replace(files=files, error=error, lately=True)
        return self._seen[path]
