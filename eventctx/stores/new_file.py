"""A new file that has its name only when it is complete and on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventctx.errors import InvalidSetting
from eventctx.stores.sqlite_errors import refused_by_system

COMPANIONS = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database."""


@contextmanager
def new_file(target: Path, setting: str) -> Iterator[Path]:
    """The path of an empty file beside ``target``, for its owner alone.

    It gets the name ``target`` when the block ends without an error; else it is removed. A process
    that is killed leaves a file ``.NAME.….part``, and no ``target``. ``setting`` is what an error
    calls the target.

    Raises InvalidSetting if there is something at ``target``, StoreFull, StoreReadOnly,
    StoreUnavailable.
    """
    check_free(target, setting)
    part = part_beside(target)
    try:
        yield part
        flush(part)
        give_name(part, target, setting)
        flush(target.parent)
    except OSError as error:
        raise refused_by_system(error, target) from error
    finally:
        discard(part)


def check_free(target: Path, setting: str) -> None:
    """Raise InvalidSetting if there is something at ``target``, or a log that SQLite would read."""
    if os.path.isdir(target):  # noqa: PTH112 - says no where a path cannot be looked at
        raise InvalidSetting(f"{setting}: expected a new file, found the folder {target}")
    if os.path.lexists(target):
        raise _taken(target, setting)
    for ending in COMPANIONS:
        beside = target.with_name(target.name + ending)
        # SQLite would take the log of an earlier file of this name for that of the new one.
        if os.path.lexists(beside):
            raise InvalidSetting(
                f"{setting}: expected no file {beside}, which belongs to another database of that "
                "name; move it away, or choose another name"
            )


def part_beside(target: Path) -> Path:
    """A new, empty, private file in the folder of ``target``. Raises as ``new_file`` does."""
    part = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise refused_by_system(error, target) from error
    return part


def discard(part: Path) -> None:
    """Remove an unfinished database with what SQLite keeps beside it; nothing need be there."""
    for ending in ("", *COMPANIONS):
        part.with_name(part.name + ending).unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk.

    Never to be called with a store's file that may be open: see ``sqlite_shared``.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def give_name(part: Path, target: Path, setting: str) -> None:
    """Give ``part`` its name, without ever replacing what came there meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError as error:
        raise _taken(target, setting) from error
    except OSError:
        # A file system without links. The name was free when the copy began.
        check_free(target, setting)
        part.rename(target)


def _taken(target: Path, setting: str) -> InvalidSetting:
    return InvalidSetting(
        f"{setting}: expected a new file, but there is one at {target}; move it away, or choose "
        "another name"
    )
