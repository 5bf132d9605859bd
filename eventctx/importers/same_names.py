"""Names for the sessions of files that have one file name in several folders.

Runs of one task lie in a folder each, and their files are called alike. The first one is named as
its file, the others with the folders that tell them apart. A second import tries the same names in
the same order, and finds each session under the name that it got, also when folders came or went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from filecmp import cmp
from pathlib import Path

from eventctx.errors import EventctxError
from eventctx.importers.detect import choose
from eventctx.importers.found import Candidate
from eventctx.importers.source.document import stem
from eventctx.importers.source.naming import session_name


class SameNames:
    """The names of the files of one search, and the names that sessions got so far."""

    def __init__(self, found: Iterable[Candidate]) -> None:
        self._count = Counter(one.path.name for one in found)
        self._taken: dict[str, Path] = {}

    def to_try(self, path: Path) -> Iterator[str | None]:
        """The names to try for a file's session; None is the one that the file gives it."""
        if self._count[path.name] < 2 or (own := _own_name(path)) is None:
            yield None
            return
        for name in (own, *_with_folders(path, own)):
            other = self._taken.get(name)
            if other is None or _same(other, path):
                yield None if name == own else name

    def took(self, path: Path, session: str | None) -> None:
        """Note the session of a file."""
        if session is not None:
            self._taken.setdefault(session, path)


def _own_name(path: Path) -> str | None:
    """The name that a file gives its session; None where a line in it gives one."""
    try:
        chosen = choose(path, None, folders=True)
    except (EventctxError, OSError):
        return None  # the import says what is wrong with it
    return session_name(stem(chosen.called(path))) if chosen.by_file else None


def _with_folders(path: Path, own: str) -> Iterator[str]:
    """The name behind that of a folder, then behind those of two, …; a folder called so says
    nothing."""
    name = own
    for folder in path.resolve().parents:
        if folder.name and folder.name != own:
            name = f"{folder.name}.{name}"
            yield session_name(name)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.is_file() and other.is_file() and cmp(one, other, shallow=False)
    except OSError:
        return False
