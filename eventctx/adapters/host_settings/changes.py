"""What ``eventctx setup`` writes, and how it is taken back.

A file is planned first (``plan``), shown, and written only if nobody changed it in between. Its
bytes before are kept in our state folder, with a record of what was written, so that ``plan_undo``
brings it back byte for byte. Of a file that somebody changed since, our parts alone are taken out.
A file that cannot be read or edited is a problem, and is never written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from eventctx.adapters.host_settings.parts import JsonPart, Part, has, put, take_out
from eventctx.errors import InvalidSetting
from eventctx.log.private_files import make_folder, whole_file

RECORD: Final = "setup.json"
"""The record's name in our folder; the files before are next to it."""

_VERSION: Final = 1


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that we wrote: its digest then, and the name of the copy of its bytes before.

    ``before`` is None where there was no file; ``folders`` were made for it, the innermost last.
    """

    digest: str
    before: str | None
    parts: tuple[Part, ...]
    folders: tuple[str, ...] = ()


class _Record(msgspec.Struct, frozen=True):
    eventctx_setup: int = _VERSION
    hosts: dict[str, dict[str, WrittenFile]] = {}


class FileChange(NamedTuple):
    """A file that is to have other bytes: ``found`` now, ``after`` then, and None for no file.

    ``base`` is what it is without us; ``parts`` are those that ``after`` has and ``base`` has not.
    With a ``problem`` it stays as it is. ``changed`` says that somebody wrote to it after us.
    """

    path: Path
    found: bytes | None
    after: bytes | None
    base: bytes | None = None
    parts: tuple[Part, ...] = ()
    problem: str | None = None
    changed: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to write."""
        return self.problem is None and self.found != self.after


class Copy(Enum):
    """``GONE``: somebody removed the copy of a file before us."""

    GONE = "gone"


class SetupState:
    """What was written for each program, and the copies of the files before, in one folder."""

    def __init__(self, folder: Path) -> None:
        """Read the record. Raises InvalidSetting for one that is damaged, or of a later release."""
        self._folder = folder
        self._hosts: dict[str, dict[str, WrittenFile]] = {}
        path = folder / RECORD
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_Record)
        except FileNotFoundError:
            return
        except msgspec.DecodeError as error:
            raise InvalidSetting(
                f"{path}: expected the record of `setup`, found something else: {error}"
            ) from error
        if record.eventctx_setup != _VERSION:
            raise InvalidSetting(
                f"{path}: expected version {_VERSION}, found {record.eventctx_setup}; "
                "update eventctx"
            )
        self._hosts = record.hosts

    @property
    def hosts(self) -> list[str]:
        """The programs for which something is written."""
        return list(self._hosts)

    def files(self, host: str) -> Mapping[str, WrittenFile]:
        """What was written for a program, by path."""
        return self._hosts.get(host, {})

    def before(self, written: WrittenFile) -> bytes | Literal[Copy.GONE] | None:
        """The bytes of a file before us, None for no file. Raises OSError."""
        if written.before is None:
            return None
        try:
            return (self._folder / written.before).read_bytes()
        except FileNotFoundError:
            return Copy.GONE

    def note(self, host: str, change: FileChange, folders: tuple[str, ...]) -> None:
        """Keep a copy of the file without us, and what is about to be written. Raises OSError."""
        name = None
        if change.base is not None:
            name = f"{_digest(os.fsencode(change.path))[:16]}-{_digest(change.base)[:16]}"
            make_folder(self._folder)
            with whole_file(self._folder / name) as file:
                file.write(change.base)
        known = self._hosts.setdefault(host, {})
        written = WrittenFile(_digest(change.after or b""), name, change.parts, folders)
        old = known.get(str(change.path))
        known[str(change.path)] = written
        self._save()
        self._drop_copy(old, unless=name)

    def forget(self, host: str, path: Path) -> None:
        """The file is as if we had not been there. Raises OSError."""
        old = self._hosts[host].pop(str(path))
        if not self._hosts[host]:
            del self._hosts[host]
        self._save()
        self._drop_copy(old, unless=None)

    def _save(self) -> None:
        if not self._hosts:
            (self._folder / RECORD).unlink(missing_ok=True)
            return
        make_folder(self._folder)
        with whole_file(self._folder / RECORD) as file:
            file.write(msgspec.json.encode(_Record(hosts=self._hosts)))

    def _drop_copy(self, old: WrittenFile | None, unless: str | None) -> None:
        if old is not None and old.before not in (None, unless):
            with suppress(FileNotFoundError):
                (self._folder / str(old.before)).unlink()


def plan(path: Path, parts: tuple[Part, ...], host: str, state: SetupState) -> FileChange:
    """The change that gives a file our parts."""
    written = state.files(host).get(str(path))

    def with_parts(data: bytes | None) -> FileChange:
        text = _text(data)
        older = [] if written is None else [one for one in written.parts if one not in parts]
        if not older and all(has(text, part) for part in parts):
            return FileChange(path, data, data)
        base, changed = _without_us(data, written, state) if written else (data, False)
        before = text = _text(base)
        for part in parts:
            if not has(text, part):
                text = put(text, part)
        new = tuple(part for part in parts if not has(before, part))
        return FileChange(path, data, _bytes(text), base, new, changed=changed)

    return _plan_with(path, with_parts)


def plan_undo(path: Path, host: str, state: SetupState) -> FileChange:
    """The change that takes a file back: to its bytes before, or to the others' part of it."""
    written = state.files(host)[str(path)]

    def without(data: bytes | None) -> FileChange:
        base, changed = _without_us(data, written, state)
        return FileChange(path, data, base, base, written.parts, changed=changed)

    return _plan_with(path, without)


def _plan_with(path: Path, make: Callable[[bytes | None], FileChange]) -> FileChange:
    data = None
    try:
        data = path.read_bytes() if path.exists() else None
        above = next(one for one in path.parents if one.exists())
        if not above.is_dir():
            raise InvalidSetting(f"expected a folder, found a file: {above}")
        return make(data)
    except InvalidSetting as error:
        return FileChange(path, data, data, problem=str(error))
    except OSError as error:
        return FileChange(path, data, data, problem=f"cannot be read: {error.strerror}")


def _without_us(
    data: bytes | None, written: WrittenFile, state: SetupState
) -> tuple[bytes | None, bool]:
    """A file's bytes without our parts, and whether somebody wrote to it after us."""
    copy = state.before(written)
    if data is not None and _digest(data) == written.digest and copy is not Copy.GONE:
        return copy, False
    text, before = _text(data), None if copy is Copy.GONE else _text(copy)
    for part in written.parts:
        text = None if text is None else take_out(text, part, before)
    if written.before is None and text is not None and _is_empty(text, written.parts):
        text = None
    return _bytes(text), True


def _is_empty(text: str, parts: tuple[Part, ...]) -> bool:
    """Whether a file that we made has nothing left."""
    return not text.strip() or (isinstance(parts[0], JsonPart) and text.strip() == "{}")


def apply(change: FileChange, host: str, state: SetupState, *, undo: bool = False) -> None:
    """Write a change, and note it first. Raises InvalidSetting for a file that changed; OSError."""
    path = Path(os.path.realpath(change.path))  # a link to it stays one
    if (path.read_bytes() if path.exists() else None) != change.found:
        raise InvalidSetting(f"{change.path}: changed in this moment; run the command again")
    folders: tuple[str, ...] = ()
    if not undo:
        known = state.files(host).get(str(change.path))
        missing = [str(one) for one in reversed(path.parents) if not one.is_dir()]
        folders = tuple(missing) or (known.folders if known else ())
        state.note(host, change, folders)
    elif known := state.files(host).get(str(change.path)):
        folders = known.folders
    if change.after is None:
        path.unlink(missing_ok=True)
    elif change.after != change.found:
        make_folder(path.parent)
        with whole_file(path) as file:
            file.write(change.after)
    if undo:
        for folder in reversed(folders):
            with suppress(OSError):  # it has files of others, or is gone
                Path(folder).rmdir()
        state.forget(host, change.path)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"expected UTF-8, found byte {data[error.start]:#04x}") from error


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
