"""Where the files of a run go, and how much of the work is done."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any


class Place:
    """A folder of its own below ``parent``, removed at the end. ``quick`` does a tenth of the work.

    All files of a run lie in it, so that a floor and its subject use the same disk.
    """

    def __init__(self, parent: Path, quick: bool) -> None:
        self.quick = quick
        self.folder = Path(tempfile.mkdtemp(prefix="eventctx-bench-", dir=parent))
        self._made = 0
        self._run: Place | None = None

    def inner(self) -> Place:
        """The place of one module, which ends before the run's."""
        made = Place(self.folder, self.quick)
        made._run = self
        return made

    def path(self, name: str) -> Path:
        """A path that no other call got."""
        self._made += 1
        return self.folder / f"{self._made}-{name}"

    async def shared(self, name: str, make: Callable[[Path], Awaitable[Any]]) -> Path:
        """A file that takes long to make: the first module that asks makes it, for the whole run.

        Others only read it, or copy it.
        """
        path = (self._run or self).folder / name
        if not path.exists():
            part = path.with_name(f"part of {name}")
            await make(part)
            part.rename(path)
        return path

    def count(self, full: int, quick: int | None = None) -> int:
        """How often to do something: ``full``, or a tenth of it (or ``quick``) in a quick run."""
        if not self.quick:
            return full
        return quick if quick is not None else max(1, full // 10)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
