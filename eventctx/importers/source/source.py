"""The source of an import: a file's lines, those of a file that grows, or a folder's events."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import (
    MAX_BYTES,
    PAUSE,
    lines_of,
    read_lines,
    too_large,
    unreadable,
)
from eventctx.importers.source.values import read_value

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the file's size."""

_PROGRESS_BYTES: Final = 1 << 18


class Source:
    """A file's lines, or a folder's events, counted as they are read.

    ``growing`` is set for a file that is read on when it has grown, ``nul`` counts the NUL bytes
    that were left out so far. Raises UnreadableFile.
    """

    def __init__(self, path: Path, progress: Progress | None, growing: bool = False) -> None:
        self.path = path
        self.is_folder = path.is_dir()
        try:
            self.size = folder_size(path) if self.is_folder else path.stat().st_size
        except OSError as error:
            raise unreadable(path, error) from error
        self.growing = GrowingLines(path) if growing and not self.is_folder else None
        self.nul = 0
        self._progress = progress

    def lines(self) -> Iterator[FileLine]:
        """The lines, one by one. Raises UnreadableFile, and MalformedTranscript for a long one."""
        try:
            yield from self._count_lines()
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _count_lines(self) -> Iterator[FileLine]:
        done = reported = 0
        lines = read_events(self.path) if self.is_folder else self.growing or read_lines(self.path)
        for line in lines:
            yield line
            if line is PAUSE:
                continue
            self.nul += line.nul
            done += len(line.data) + line.nul + 1
            if self.growing is not None:
                self.size = max(self.size, done)
            if self._progress is not None and done - reported >= _PROGRESS_BYTES:
                reported = done
                self._progress(min(done, self.size), self.size)
        if self._progress is not None:
            self._progress(self.size, self.size)


_REMEMBERED: Final = 4096
"""Bytes before the place of the pause that must be the same when the file is read on."""


class GrowingLines:
    """The lines of one file. Only whole lines come, as long as the file may grow.

    A parser is a generator over lines, and keeps its state while it waits for the next one. So a
    file that grows is read once, and not from its start at every change. At the end of the file the
    lines give ``PAUSE``, a blank line. ``read_rows`` turns it into the item ``Paused``; the runner
    of the parser sees it, waits, and calls ``resume``. A parser that reads its lines in another way
    sees a blank line, ``resume`` is not called, and the lines end as those of any file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._place = 0
        self._before = b""
        self._resumed = False

    def __iter__(self) -> Iterator[FileLine]:
        with self._path.open("rb") as file:
            self._file = file
            number = 1
            while True:
                place = file.tell()
                data = file.readline(MAX_BYTES + 1)
                if len(data) > MAX_BYTES:
                    raise too_large(f"{self._path.name}, line {number}", "a line")
                if data.endswith(b"\n"):
                    yield from lines_of(number, data)
                    number += 1
                    continue
                if not _is_record(data):
                    self._place, self._before = place, self._bytes_before(place)
                    self._resumed = False
                    yield PAUSE
                    if self._resumed:
                        continue
                # The lines end here: reading stops, or the last line is whole without its end.
                # The next import reads it again, with what was written after it.
                if data:
                    yield from lines_of(number, data)
                return

    def resume(self) -> None:
        """Let the lines go on after the last ``PAUSE``."""
        self._resumed = True

    def is_same(self) -> bool:
        """Whether the path still leads to the file that is read, with what was read in it.

        A change in the middle of it stays unnoticed here; the next import from the start finds it.
        """
        if self._file is None or self._file.closed:
            return False
        try:
            there, opened = self._path.stat(), os.fstat(self._file.fileno())
        except OSError:
            return False
        same = (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)
        return same and self._bytes_before(self._place) == self._before

    def _bytes_before(self, place: int) -> bytes:
        """The last bytes before a place; the file is at that place afterwards."""
        if self._file is None:
            return b""
        start = max(0, place - _REMEMBERED)
        self._file.seek(start)
        data = self._file.read(place - start)
        self._file.seek(place)
        return data


def _is_record(data: bytes) -> bool:
    """Whether a line without its end is a whole object, as its program may never end the line."""
    if not data.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(read_value(data)[0], dict)
    except ValueError:
        return False


_NAME: Final = re.compile(r"event-(\d+)(?:-.*)?\.json")


def is_event_folder(path: Path) -> bool:
    """Whether a folder holds event files."""
    return path.is_dir() and any(map(is_event_file, path.iterdir()))


def is_event_file(path: Path) -> bool:
    """Whether a file has the name of an event file."""
    return _NAME.fullmatch(path.name) is not None


def is_event_path(path: str) -> bool:
    """Whether a path as text ends in the name of an event file."""
    return _NAME.fullmatch(path.rpartition(os.sep)[2]) is not None


def event_files(path: Path) -> list[tuple[int, Path]]:
    """The event files of a folder and their numbers, in order."""
    found = ((_NAME.fullmatch(file.name), file) for file in path.iterdir())
    numbered = [(int(match[1]), file) for match, file in found if match is not None]
    return sorted(numbered, key=lambda entry: (entry[0], entry[1].name))


def read_events(path: Path) -> Iterator[FileLine]:
    """A line for each event. Its number is one more than the file's: events count from 0.

    Only the last file may be half written, because the program writes them one after another.
    Raises MalformedTranscript for an event of more than ``MAX_BYTES``.
    """
    files = event_files(path)
    for place, (number, file) in enumerate(files, 1):
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise too_large(f"{path.name}/{file.name}", "an event")
        yield FileLine(number + 1, data.strip(), place < len(files))


def folder_size(path: Path) -> int:
    """Bytes of all events."""
    return sum(file.stat().st_size for _, file in event_files(path))


def folder_name(path: Path) -> str:
    """The conversation's name: its folder, which may hold the events in a folder ``events``."""
    path = path.resolve()
    return path.parent.name if path.name == "events" else path.name
