"""The transcripts under a path, and what stands there under such a name and is no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from eventctx.errors import UnreadableFile
from eventctx.importers.detect import is_transcript_folder
from eventctx.importers.source.event_folder import is_event_path
from eventctx.importers.source.lines import unreadable

ENDINGS: Final = (".jsonl", ".json", ".traj", ".ndjson", ".yaml", ".yml")
"""The endings of the files that a search of a folder takes."""

SUBAGENTS: Final = "subagents"
"""The folder beside a Claude Code session, in a folder of its name, that holds its subagents'."""

_IN_SUBAGENTS: Final = f"{os.sep}{SUBAGENTS}{os.sep}"


class FileState(NamedTuple):
    """What changes when a file is written to or replaced. ``modified`` is in nanoseconds."""

    path: str
    inode: int
    size: int
    modified: int


class Candidate(NamedTuple):
    """A file, or a folder of events, to import. ``named``: the caller named it, no search did.

    ``error`` is what keeps it from being read. ``files`` are the files that its import reads: those
    of subagents and of single events, too.
    """

    path: Path
    named: bool = False
    error: UnreadableFile | None = None
    files: tuple[FileState, ...] = ()


def find(path: Path) -> Iterator[Candidate]:
    """The transcript at a path, or those in a folder and the folders in it, by their names.

    Links to folders are not followed. A folder of events is one transcript. Subagents' files are
    left out, because they are imported with the session that they belong to. Raises nothing: a
    folder that may not be read, a pipe, or a link to nowhere is found with its error.
    """
    try:
        named = not path.is_dir() or is_transcript_folder(path)
        if named:
            yield Candidate(path, named=True, files=_files_of(path))
            return
    except OSError as error:
        yield Candidate(path, named=True, error=unreadable(path, error))
        return
    errors: dict[str, UnreadableFile] = {}
    files: dict[str, list[FileState]] = {}
    for owner, found in _owned(os.fspath(path), os.fspath(path)):
        if isinstance(found, FileState):
            files.setdefault(owner, []).append(found)
        else:
            errors[owner] = found
    for one in sorted({*files, *errors}, key=_by_folders):
        states = tuple(sorted(files.get(one, ())))
        # Subagents' files without the session's own file belong to nothing.
        if one in errors or any(file.path == one or is_event_path(file.path) for file in states):
            yield Candidate(Path(one), error=errors.get(one), files=states)


def _by_folders(path: str) -> str:
    return path.replace(os.sep, "\0")


def state_of(candidate: Candidate) -> tuple[FileState, ...]:
    """The present files of a candidate, as ``find`` would give them; none if it is gone."""
    if candidate.error is not None:
        return candidate.files
    try:
        return _files_of(candidate.path)
    except OSError:
        return ()


def _files_of(path: Path) -> tuple[FileState, ...]:
    own = os.fspath(path)
    folder, root = path, path
    found: list[FileState] = []
    if not path.is_dir():
        folder, root = path.with_suffix("") / SUBAGENTS, path.parent
        found = [_state(own, path.stat())]
    if folder.is_dir():
        for owner, one in _owned(os.fspath(folder), os.fspath(root)):
            if isinstance(one, FileState) and owner == own:
                found.append(one)
    return tuple(sorted(found))


def _owned(folder: str, root: str) -> Iterator[tuple[str, FileState | UnreadableFile]]:
    """The files in a folder, each with the path of the transcript that it belongs to."""
    above = len(root)
    for path, found in _in_folder(folder):
        owner = _owner(path, above)
        # Of a subagent's file the import of its session says what is wrong.
        if owner == path or isinstance(found, FileState):
            yield owner, found


def _in_folder(folder: str) -> Iterator[tuple[str, FileState | UnreadableFile]]:
    """The files in a folder and the folders in it that have the ending of a transcript."""
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
    except OSError as error:
        yield folder, unreadable(Path(folder), error)
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _in_folder(entry.path)
        elif entry.name.endswith(ENDINGS):
            found = _file(entry)
            if found is not None:
                yield entry.path, found


def _file(entry: os.DirEntry[str]) -> FileState | UnreadableFile | None:
    """None for a link to a folder."""
    try:
        there = entry.stat()
    except OSError as error:
        return unreadable(Path(entry.path), error)
    if stat.S_ISREG(there.st_mode):
        return _state(entry.path, there)
    if stat.S_ISDIR(there.st_mode):
        return None
    return UnreadableFile(f"{entry.path}: expected a file, found a pipe, a socket or a device")


def _owner(path: str, above: int) -> str:
    """The transcript that a file belongs to: its main session's file, its folder, or itself.

    ``above`` is the length of the path of the folder that is searched; what is above it counts not.
    """
    place = path.find(_IN_SUBAGENTS, above)
    if place >= 0:
        return f"{path[:place]}.jsonl"
    return path.rpartition(os.sep)[0] if is_event_path(path) else path


def _state(path: str, there: os.stat_result) -> FileState:
    return FileState(path, there.st_ino, there.st_size, there.st_mtime_ns)
