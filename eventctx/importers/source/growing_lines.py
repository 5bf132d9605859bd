"""The lines of a file that is being written: at its end they pause, and go on when it has grown.

A parser is a generator over lines, and keeps its state while it waits for the next one. So a file
that grows is read once, and not from its start at every change. At the end of the file the lines
give ``PAUSE``, a blank line. ``read_rows`` turns it into the item ``Paused``; whoever runs the
parser sees it, waits, and calls ``resume``. To a parser that reads its lines in another way
``PAUSE`` is a blank line, nobody calls ``resume``, and the lines end as those of any file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import MAX_BYTES, PAUSE, lines_of, too_large
from eventctx.importers.source.values import read_value

_REMEMBERED: Final = 4096
"""Bytes before the place of the pause that must be the same when the file is read on."""


class GrowingLines:
    """The lines of one file. Only whole lines come, as long as the file may grow."""

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
                # The lines end here: nobody goes on, or the last line is whole without its end.
                # The next import reads it again, with what was written behind it.
                if data:
                    yield from lines_of(number, data)
                return

    def resume(self) -> None:
        """Let the lines go on behind the last ``PAUSE``."""
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
        """The last bytes before a place, at which the file stands afterwards."""
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
