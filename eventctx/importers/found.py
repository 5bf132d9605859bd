"""The transcripts under a path: those that are there, and those that come or change."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, time_ns
from typing import Final, NamedTuple

from eventctx.errors import InvalidSetting, UnreadableFile
from eventctx.importers.detect import is_transcript_folder
from eventctx.importers.formats import opencode_storage
from eventctx.importers.source.companions import companions, owner_of
from eventctx.importers.source.lines import unreadable
from eventctx.importers.source.source import is_event_path

ENDINGS: Final = (".jsonl", ".json", ".traj", ".ndjson", ".yaml", ".yml")
"""The endings of the files that a search of a folder takes."""

MOST_ENTRIES: Final = 200_000
"""Files and folders, at any depth, of a folder that is searched."""

SUBAGENTS: Final = "subagents"
"""The folder of subagents' files, in a folder with the name of a Claude Code session."""

_IN_SUBAGENTS: Final = f"{os.sep}{SUBAGENTS}{os.sep}"
_OF_A_SESSION: Final = re.compile(r"[0-9a-fA-F-]{32,36}[\\/]agent-[^\\/]*\.jsonl")
"""A subagent's file of Qwen Code, in a folder with the name of a session: a session of its own."""

_OF_CURSOR: Final = f"{os.sep}.cursor{os.sep}projects{os.sep}"
_TRANSCRIPTS: Final = f"{os.sep}agent-transcripts{os.sep}"
"""Cursor's folder of transcripts; next to it are many files of other kinds."""


class FileState(NamedTuple):
    """The state of a file; a write or a replacement changes it. ``modified`` is in nanoseconds."""

    path: str
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: str, there: os.stat_result) -> FileState:
        """The state that the file system tells."""
        return cls(path, there.st_ino, there.st_size, there.st_mtime_ns)


class Candidate(NamedTuple):
    """A file, or a folder of events, to import. ``named``: the caller named it, no search did.

    ``error`` is what keeps it from being read. ``files`` are the files that its import reads: those
    of subagents and of single events, too.
    """

    path: Path
    named: bool = False
    error: UnreadableFile | None = None
    files: tuple[FileState, ...] = ()


def check_folder(path: Path) -> None:
    """Raise InvalidSetting for a folder that nobody means all of: ``/``, or one as large."""
    folders = [os.fspath(path)] if path.is_dir() else []
    count = MOST_ENTRIES if os.path.ismount(path) and path.resolve().parent == path.resolve() else 0
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        if count > MOST_ENTRIES:
            raise InvalidSetting(
                f"{path}: expected a folder of sessions, found a whole disk or more than "
                f"{MOST_ENTRIES:,} files; name a folder in it, such as ~/.claude/projects"
            )


def find(path: Path) -> Iterator[Candidate]:
    """The transcript at a path, or those in a folder and the folders in it, by their names.

    Links to folders are not followed. A folder of events is one transcript. Subagents' files are
    left out, because they are imported with the session that they belong to. Raises nothing: a
    folder that may not be read, a pipe, or a link to nowhere is found with its error.
    """
    found = search(path)
    for one in sorted({*found.files, *found.errors}, key=_by_folders):
        yield Candidate(
            Path(one),
            named=found.named,
            error=found.errors.get(one),
            files=found.files.get(one, ()),
        )


class FoundFiles(NamedTuple):
    """The result of a search, by the paths of the transcripts: their files, or their errors.

    ``named``: the path that was searched is itself the one transcript.
    """

    files: dict[str, tuple[FileState, ...]]
    errors: dict[str, UnreadableFile]
    named: bool = False


def search(path: Path) -> FoundFiles:
    """The candidates of ``find``, as tables; it takes half the time."""
    own = os.fspath(path)
    try:
        kind = path.stat().st_mode
        if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
            return FoundFiles({}, {own: _no_file(own)}, named=True)
        if stat.S_ISREG(kind) or is_transcript_folder(path):
            return FoundFiles({own: files_of(path)}, {}, named=True)
    except OSError as error:
        return FoundFiles({}, {own: unreadable(path, error)}, named=True)
    files: dict[str, list[FileState]] = {}
    errors: dict[str, UnreadableFile] = {}
    _collect(own, len(own), files, errors)
    # Subagents' files without the session's own file belong to nothing.
    whole = {
        one: tuple(sorted(states)) if len(states) > 1 else (states[0],)
        for one, states in files.items()
        if any(file.path == one or is_event_path(file.path) for file in states)
    }
    return FoundFiles(whole, errors)


def files_of(path: Path) -> tuple[FileState, ...]:
    """The files that an import of a transcript reads. Raises OSError."""
    own = os.fspath(path)
    folder, root = path, path
    found: list[FileState] = []
    if not path.is_dir():
        folder, root = agents_folder(path), path.parent
        beside = (*companions(path), *opencode_storage.files_of_session(path))
        found = [FileState.of(own, path.stat()), *_states(beside)]
    if folder.is_dir():
        files: dict[str, list[FileState]] = {}
        _collect(os.fspath(folder), len(os.fspath(root)), files, {})
        found += files.pop(own, ())
        if not found:  # a session of several files, each of which a search finds by itself
            found = [file for states in files.values() for file in states]
    return tuple(sorted(found))


def agents_folder(path: Path) -> Path:
    """The folder of the files of a session's subagents: next to its file, or around it."""
    around = path.parent if path.parent.name == path.stem else path.with_suffix("")
    return around / SUBAGENTS


def _by_folders(path: str) -> str:
    return path.replace(os.sep, "\0")


def _collect(
    folder: str,
    above: int,
    files: dict[str, list[FileState]],
    errors: dict[str, UnreadableFile],
) -> None:
    """Add the files in a folder and the folders in it that have the ending of a transcript."""
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
    except OSError as error:
        errors[folder] = unreadable(Path(folder), error)
        return
    own = opencode_storage.sessions_in(Path(folder), {entry.name for entry in entries})
    if own is not None:
        for session in own:
            _add_session(session, files, errors)
        return
    for entry in entries:
        path = entry.path
        if entry.is_dir(follow_symlinks=False):
            _collect(path, above, files, errors)
        elif _may_be_transcript(path):
            owner = _owner(path, above)
            try:
                there = entry.stat()
            except OSError as error:
                problem = unreadable(Path(path), error)
            else:
                if stat.S_ISREG(there.st_mode):
                    files.setdefault(owner, []).append(FileState.of(path, there))
                    continue
                if stat.S_ISDIR(there.st_mode):
                    continue
                problem = _no_file(path)
            # Of a subagent's file the import of its session says what is wrong.
            if owner == path:
                errors[path] = problem


def _may_be_transcript(path: str) -> bool:
    """Whether a file has the ending of a transcript."""
    if _TRANSCRIPTS in path:
        return path.endswith((*ENDINGS, ".txt"))
    return path.endswith(ENDINGS) and _OF_CURSOR not in path


def _add_session(
    session: Path, files: dict[str, list[FileState]], errors: dict[str, UnreadableFile]
) -> None:
    """Add a session that is in many files, or in a database."""
    try:
        files[os.fspath(session)] = list(files_of(session))
    except OSError as error:
        errors[os.fspath(session)] = unreadable(session, error)
    except UnreadableFile as error:
        errors[os.fspath(session)] = error


def _states(paths: Iterable[Path]) -> list[FileState]:
    """The states of files; one that is gone by now has none."""
    found = []
    for path in paths:
        with suppress(FileNotFoundError):
            found.append(FileState.of(os.fspath(path), path.stat()))
    return found


def _no_file(path: str) -> UnreadableFile:
    return UnreadableFile(
        f"{path}: expected a file, which is read more than once, found a pipe, a socket or a "
        "device; write it to a file first"
    )


def _owner(path: str, above: int) -> str:
    """The transcript that a file belongs to: its main session's file, its folder, or itself.

    ``above`` is the length of the path of the folder that is searched; what is above it counts not.
    """
    place = path.find(_IN_SUBAGENTS, above)
    if place >= 0 and not _OF_A_SESSION.fullmatch(path, place + len(_IN_SUBAGENTS)):
        session = path[:place].rpartition(os.sep)[2]
        inside = f"{path[:place]}{os.sep}{session}.jsonl"
        return inside if Path(inside).is_file() else f"{path[:place]}.jsonl"
    return path.rpartition(os.sep)[0] if is_event_path(path) else owner_of(path)


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
    """Notices that files change, by looking, as any file system answers that.

    Size, time of the last change and inode of each file are compared with those of the last look.
    Files that changed lately are looked at every time; all others, and new ones, are searched for
    every ``SEARCH`` seconds, or at ten times the duration of a search where there are very many.
    ``quiet``: seconds for which a file counts as being written.
    """

    def __init__(self, paths: Iterable[str | Path], quiet: float) -> None:
        self._roots = [Path(path).absolute() for path in paths]
        self._quiet = quiet
        self._seen: dict[str, ChangedFile] = {}
        self._lately: dict[str, float] = {}
        self._unreadable: set[str] = set()
        self._next_search = 0.0

    async def look(self) -> list[ChangedFile]:
        """The files that are new or have changed since the last look."""
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
