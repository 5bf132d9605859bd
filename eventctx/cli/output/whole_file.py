"""Output files that appear only when they are complete; pipes and devices are written directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from eventctx.errors import InvalidSetting
from eventctx.log import private_files

_DATABASE: Final = b"SQLite format 3\0"
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database; without them, records are lost."""


@contextmanager
def whole_file(output: Path) -> Iterator[IO[bytes]]:
    """A file to write to, as ``private_files.whole_file``.

    A pipe or a device such as ``/dev/null`` is written to directly. Raises InvalidSetting for a
    store, or another database: no output replaces it.
    """
    if _is_of_a_database(output):
        raise InvalidSetting(
            f"{output}: expected a file for the output, found a database; choose another path"
        )
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            yield file
    else:
        with private_files.whole_file(output) as file:
            yield file


def _is_of_a_database(output: Path) -> bool:
    names = {output.name, *[output.name.removesuffix(one) for one in _BESIDE]}
    return any(name and _is_database(output.with_name(name)) for name in names)


def _is_database(path: Path) -> bool:
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(_DATABASE)) == _DATABASE
    return False
