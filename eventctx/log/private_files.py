"""Files and folders that only their owner may read: they hold what a log holds, or tell of it.

A file that exists already keeps its rights, since somebody chose them, and an umask that takes more
is respected.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from eventctx.errors import InvalidSetting

FILE_RIGHTS: Final = 0o600
FOLDER_RIGHTS: Final = 0o700
KEY_BYTES: Final = 32

_DATABASE: Final = b"SQLite format 3\0"
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps with a database; without them, records are lost."""


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing. Raises OSError."""
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            # Another process may make it at the same moment.
            one.mkdir(FOLDER_RIGHTS, exist_ok=True)


def check_output(output: Path) -> None:
    """Raise InvalidSetting where there is no folder to write in, or a database would be replaced.

    Nothing that is written replaces a store, or another database.
    """
    if not output.parent.is_dir():
        raise InvalidSetting(
            f"{output}: expected a folder {output.parent} to write it in, found none; make it, or "
            "choose another path"
        )
    names = {output.name, *[output.name.removesuffix(one) for one in _BESIDE]}
    if any(name and _is_database(output.with_name(name)) for name in names):
        raise InvalidSetting(
            f"{output}: expected a file for the output, found a database; choose another path"
        )
    if output.is_dir():
        raise InvalidSetting(f"{output}: expected a file for the output, found a folder")


def _is_database(path: Path) -> bool:
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(_DATABASE)) == _DATABASE
    return False


@contextmanager
def whole_file(output: Path) -> Iterator[IO[bytes]]:
    """A file to write to: it has a name of its own until it replaces ``output`` at the end.

    So nobody can take a broken file for a complete one, and an older one stays until the end.
    Raises OSError.
    """
    unfinished = output.with_name(f".{output.name}.{os.getpid()}.part")
    unfinished.unlink(missing_ok=True)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(unfinished, flags, FILE_RIGHTS), "wb") as file:
            yield file
        with suppress(FileNotFoundError):
            unfinished.chmod(stat.S_IMODE(output.stat().st_mode))
        unfinished.replace(output)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def own_key(path: Path, *, make: bool) -> bytes:
    """The key of ``KEY_BYTES`` in a file; ``make`` writes a new one where there is none.

    Raises OSError, also for a file that holds no key.
    """
    if make and not path.exists():
        make_folder(path.parent)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        with open(unfinished, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(os.urandom(KEY_BYTES))
        try:
            # Of two processes the first one makes the key of both.
            os.link(unfinished, path)
        except FileExistsError:
            pass
        finally:
            unfinished.unlink(missing_ok=True)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(errno.EINVAL, f"expected a key of {KEY_BYTES} bytes", str(path))
    return key


def append_line(
    path: Path, line: bytes, check: Callable[[bytes], None], rights: int = FILE_RIGHTS
) -> None:
    """Append a line, which has no line end yet, in one write: any number of processes may at once.

    ``check`` gets the file's first 100 bytes, and raises for a file that must not be written. A
    last line that a full disk or a power cut tore is ended first, so it spoils no other. A new file
    gets ``rights``. Raises OSError; of a line that was written in part, with ENOSPC.
    """
    with open(
        path, "ab+", buffering=0, opener=lambda name, flags: os.open(name, flags, rights)
    ) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        check(file.read(100))
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                line = b"\n" + line
        if file.write(line + b"\n") <= len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
