"""Whether the store's file is still the one that was opened.

An open file goes on answering after somebody removed it, or put another one in its place: the page
would show what was destroyed, and would never show what is written from now on.
"""

from __future__ import annotations

from pathlib import Path

from eventctx.errors import StoreUnavailable


class StoreGone(StoreUnavailable):
    """The store's file was removed, moved or replaced since it was opened."""


class StoreFile:
    """The file at ``path`` as it is now; None for a store without one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._opened = _identity(path)

    def check(self) -> None:
        """Raise StoreGone where the file is another one by now, or none."""
        if self._path is not None and _identity(self._path) != self._opened:
            raise StoreGone(
                f"{self._path.name} was removed, moved or replaced: end `eventctx inspect` and "
                "start it again"
            )


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)
