"""The files that were imported, and their states then: a file next to the store, never needed.

One index for all that reads files: ``eventctx`` alone offers a file that is not in it, ``import``
and ``watch`` note what they read, and ``watch`` reads nothing again that has not changed. This is a
cache: without it, or after an update of eventctx, all files are read again, and nothing is added
twice. It is replaced as a whole, so a reader sees one state or the other. It holds names of files
and sessions and no content. A file of its name that somebody else made is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from eventctx.errors import LogCorrupted
from eventctx.importers.found import FileState
from eventctx.importers.many import FilePassedOver
from eventctx.log.private_files import FILE_RIGHTS
from eventctx.log.store import EventStore, StreamInfo
from eventctx.version import __version__

SUFFIX: Final = "-imported.json"
"""Behind the name of the store."""

_MARK: Final = b'{"eventctx_imported":'
_VERSION: Final = 1
_OF_THE_FILE: Final = (None, "UnknownFormat", "NotATranscript", "MalformedTranscript")
"""Reasons to pass over a file that are in the file alone."""


class _Session(msgspec.Struct, frozen=True, array_like=True):
    created: int
    head: int


class KnownFile(msgspec.Struct, frozen=True):
    """The files that an import read, the sessions that it made, or why it was passed over."""

    files: tuple[FileState, ...]
    sessions: dict[str, _Session] = {}
    passed_over: FilePassedOver | None = None

    @property
    def may_be_read_now(self) -> bool:
        """Whether what kept the file from being read may be over, though it has not changed."""
        return self.passed_over is not None and self.passed_over.error not in _OF_THE_FILE


class _Known(msgspec.Struct, frozen=True):
    eventctx_imported: int
    library: str
    imported: dict[str, KnownFile]


class KnownFiles:
    """The files that were imported into one store; without a path, none are known."""

    def __init__(self, store: Path | None) -> None:
        self._path = None if store is None else store.with_name(store.name + SUFFIX)
        self._changed = False
        self._known: dict[str, KnownFile] = {}
        if self._path is None:
            return
        with suppress(OSError, msgspec.DecodeError):
            data = self._path.read_bytes()
            if data and not data.startswith(_MARK):
                self._path = None
                return
            stored = msgspec.json.decode(data, type=_Known, dec_hook=_path)
            if (stored.eventctx_imported, stored.library) == (_VERSION, __version__):
                self._known = stored.imported

    async def get(
        self, path: Path, files: tuple[FileState, ...], store: EventStore
    ) -> KnownFile | None:
        """The entry of a path, if its ``files`` and its sessions are as they were left.

        A session of the store may have got more records since. Raises StoreError.
        """
        known = self._known.get(os.fspath(path))
        if known is None or known.files != files:
            return None
        for name, session in known.sessions.items():
            try:
                there = await store.head(name)
            except LogCorrupted:
                return None
            if there is None or there.created != session.created:
                return None
            if there.head < session.head and not there.deleted:
                return None
        return known

    def note(
        self,
        path: Path,
        files: tuple[FileState, ...],
        sessions: Mapping[str, StreamInfo],
        passed_over: FilePassedOver | None,
    ) -> None:
        """Note the outcome of an import that has read these files to their ends."""
        heads = {name: _Session(info.created, info.head) for name, info in sessions.items()}
        self._known[os.fspath(path)] = KnownFile(files, heads, passed_over)
        self._changed = True

    def save(self) -> None:
        """Write what was noted. A failure costs a second reading of the files, and is not told."""
        if self._path is None or not self._changed:
            return
        self._changed = False
        new = self._path.with_name(self._path.name + ".new")
        with suppress(OSError, UnicodeEncodeError):
            data = msgspec.json.encode(
                _Known(_VERSION, __version__, self._known), enc_hook=os.fspath
            )
            with open(new, "wb", opener=_private) as file:
                file.write(data)
            new.replace(self._path)


def _path(kind: type, value: object) -> Path:
    """The one type of a value that JSON does not have."""
    return Path(str(value))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_RIGHTS)
