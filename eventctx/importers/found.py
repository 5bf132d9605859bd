"""The transcripts under a path, and what stands there under such a name and is no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from eventctx.errors import UnreadableFile
from eventctx.importers.source.event_folder import is_event_file, is_event_folder
from eventctx.importers.source.lines import unreadable

ENDINGS: Final = (".jsonl", ".json", ".traj", ".ndjson")
"""The endings of the files that a search of a folder takes."""

_BELONGS: Final = "subagents"


class Candidate(NamedTuple):
    """A file, or a folder of events, to import. ``named``: the caller named it, no search did.

    ``error`` is what keeps it from being read.
    """

    path: Path
    named: bool = False
    error: UnreadableFile | None = None


def find(path: Path) -> Iterator[Candidate]:
    """The transcript at a path, or those in a folder and the folders in it, by their names.

    Links to folders are not followed. A folder of events is one transcript. Subagents' files are
    left out, because they are imported with the session that they belong to. Raises nothing: a
    folder that may not be read, a pipe, or a link to nowhere is found with its error.
    """
    try:
        if not path.is_dir() or is_event_folder(path):
            yield Candidate(path, named=True)
            return
    except OSError as error:
        yield Candidate(path, named=True, error=unreadable(path, error))
        return
    yield from sorted(set(_in_folder(path)), key=attrgetter("path"))


def _in_folder(folder: Path) -> Iterator[Candidate]:
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
    except OSError as error:
        yield Candidate(folder, error=unreadable(folder, error))
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if entry.name != _BELONGS:
                yield from _in_folder(path)
        elif path.suffix in ENDINGS:
            yield from _file(path, folder)


def _file(path: Path, folder: Path) -> Iterator[Candidate]:
    try:
        kind = path.stat().st_mode
    except OSError as error:
        yield Candidate(path, error=unreadable(path, error))
        return
    if stat.S_ISREG(kind):
        # Files of single events are one transcript, so their folder is imported.
        yield Candidate(folder if is_event_file(path) else path)
    elif not stat.S_ISDIR(kind):
        problem = UnreadableFile(f"{path}: expected a file, found a pipe, a socket or a device")
        yield Candidate(path, error=problem)
