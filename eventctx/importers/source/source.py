"""What an import reads: a file's lines, those of a file that grows, or the events of a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from eventctx.importers.source.event_folder import folder_size, read_events
from eventctx.importers.source.growing_lines import GrowingLines
from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import PAUSE, read_lines, unreadable

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
            yield from self._counted()
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _counted(self) -> Iterator[FileLine]:
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
