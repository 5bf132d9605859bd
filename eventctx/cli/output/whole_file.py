"""Output files that appear only when they are complete; pipes and devices are written directly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NoReturn

from eventctx.errors import InvalidSetting
from eventctx.log import private_files

_ENDING: Final = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
_DATABASE: Final = b"SQLite format 3\0"
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps with a database; without them, records are lost."""


@contextmanager
def whole_file(output: Path) -> Iterator[IO[bytes]]:
    """A file to write to, as ``private_files.whole_file``.

    A pipe or a device such as ``/dev/null`` is written to directly. Raises InvalidSetting for a
    store, or another database, which no output replaces, and where there is no folder to write in.
    """
    if not output.parent.is_dir():
        raise InvalidSetting(
            f"{output}: expected a folder {output.parent} to write it in, found none; make it, or "
            "choose another path"
        )
    if _is_of_a_database(output):
        raise InvalidSetting(
            f"{output}: expected a file for the output, found a database; choose another path"
        )
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            yield file
    else:
        with _ended_by_exceptions(), private_files.whole_file(output) as file:
            yield file


@contextmanager
def _ended_by_exceptions() -> Iterator[None]:
    """Let a signal that ends the program end the block first: so nothing half written is left."""

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {one: signal.signal(one, end) for one in _ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _is_of_a_database(output: Path) -> bool:
    names = {output.name, *[output.name.removesuffix(one) for one in _BESIDE]}
    return any(name and _is_database(output.with_name(name)) for name in names)


def _is_database(path: Path) -> bool:
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(_DATABASE)) == _DATABASE
    return False
