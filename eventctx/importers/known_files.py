"""The files that were imported, and their states then: a file next to the store, never needed.

One index for all that reads files: ``eventctx`` alone offers a file that is not in it, ``import``
and ``watch`` note what they read and read nothing again that has not changed. A file whose size,
time and inode are as they were is not opened; one that was only touched or copied is known by its
digest. A file has one entry, however its path is typed: the path of its folder is resolved, and its
own name stays, of which its session may be called. This is a cache: without it, or after an update
of eventctx, all files are read again, and nothing is added twice. It is replaced as a whole, so a
reader sees one state or the other. It holds names of files and sessions, counts and warnings. A
file of its name that somebody else made is left alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from eventctx.errors import LogCorrupted
from eventctx.importers.found import FileState
from eventctx.importers.many import FilePassedOver
from eventctx.importers.one_session import ImportSummary
from eventctx.log.private_files import FILE_RIGHTS
from eventctx.log.store import EventStore, StreamInfo
from eventctx.version import __version__

SUFFIX: Final = "-imported.json"
"""Behind the name of the store."""

_MARK: Final = b'{"eventctx_imported":'
_VERSION: Final = 3
_PIECE: Final = 1 << 20
_OF_THE_FILE: Final = (None, "UnknownFormat", "NotATranscript", "MalformedTranscript")
"""Reasons to pass over a file that are in the file alone."""


class _Session(msgspec.Struct, frozen=True, array_like=True):
    created: int
    head: int


class KnownFile(msgspec.Struct, frozen=True):
    """The files that an import read, the sessions that it made, or why it was passed over.

    ``digest`` is that of their contents, ``summaries`` are those of another import of them; both
    are noted by ``note_read`` alone.
    """

    files: tuple[FileState, ...]
    sessions: dict[str, _Session] = {}
    passed_over: FilePassedOver | None = None
    digest: str | None = None
    summaries: tuple[ImportSummary, ...] = ()

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
        self._folders: dict[str, Path] = {}
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

        A session of the store may have got more records since. What was passed over is under the
        path as it is now named. Raises StoreError.
        """
        known = await self._unchanged(path, files)
        if known is None:
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
        problem = known.passed_over
        if problem is None:
            return known
        names = self._names(path, files)
        problem = msgspec.structs.replace(problem, path=names.get(problem.path, problem.path))
        return msgspec.structs.replace(known, passed_over=problem)

    async def summaries(
        self, path: Path, files: tuple[FileState, ...], store: EventStore
    ) -> tuple[ImportSummary, ...]:
        """The summaries of another import of a path that would find nothing new; else none.

        They are under the paths as they are now named. That needs the sessions to be as the last
        import left them, to the record. Raises StoreError.
        """
        known = await self._unchanged(path, files)
        if known is None or not known.summaries:
            return ()
        for name, session in known.sessions.items():
            try:
                there = await store.head(name)
            except LogCorrupted:
                return ()
            if there is None or there.deleted:
                return ()
            if (there.created, there.head) != (session.created, session.head):
                return ()
        names = self._names(path, files)
        return tuple(
            [
                msgspec.structs.replace(one, path=names.get(one.path, one.path))
                for one in known.summaries
            ]
        )

    async def _unchanged(self, path: Path, files: tuple[FileState, ...]) -> KnownFile | None:
        """The entry of a path, if its ``files`` are as they were when they were read."""
        key, files = self._resolve(path), self._resolve_all(files)
        known = self._known.get(key)
        if known is None or known.files == files:
            return known
        if not await _same_contents(known, files):
            return None
        self._changed = True
        known = self._known[key] = msgspec.structs.replace(known, files=files)
        return known

    async def note_read(
        self,
        path: Path,
        files: tuple[FileState, ...],
        sessions: Mapping[str, StreamInfo],
        results: Sequence[ImportSummary | FilePassedOver],
        *,
        plainly: bool,
    ) -> None:
        """Note the outcome of an import, and, if it was made ``plainly``, what the next one gives.

        That is the same without new records, unless a part of the file was passed over.
        """
        problem = next((one for one in results if isinstance(one, FilePassedOver)), None)
        self.note(path, files, sessions, problem)
        if plainly and problem is None:
            summaries = [one for one in results if isinstance(one, ImportSummary)]
            key = self._resolve(path)
            known = self._known[key]
            self._known[key] = msgspec.structs.replace(
                known,
                digest=await asyncio.to_thread(_digest_of, known.files),
                summaries=tuple(
                    [
                        msgspec.structs.replace(one, path=Path(self._resolve(one.path)), added=0)
                        for one in summaries
                    ]
                ),
            )

    def note(
        self,
        path: Path,
        files: tuple[FileState, ...],
        sessions: Mapping[str, StreamInfo],
        passed_over: FilePassedOver | None,
    ) -> None:
        """Note the outcome of an import that has read these files to their ends."""
        heads = {name: _Session(info.created, info.head) for name, info in sessions.items()}
        if passed_over is not None:
            place = Path(self._resolve(passed_over.path))
            passed_over = msgspec.structs.replace(passed_over, path=place)
        known = KnownFile(self._resolve_all(files), heads, passed_over)
        self._known[self._resolve(path)] = known
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

    def _resolve(self, path: str | Path) -> str:
        """The absolute path of a file; the path of each folder is resolved once."""
        folder, name = os.path.split(path)
        if name in (os.curdir, os.pardir):
            return os.fspath(Path(path).resolve())
        if folder not in self._folders:
            self._folders[folder] = Path(folder).resolve()
        return os.fspath(self._folders[folder] / name)

    def _resolve_all(self, files: tuple[FileState, ...]) -> tuple[FileState, ...]:
        return tuple(sorted([one._replace(path=self._resolve(one.path)) for one in files]))

    def _names(self, path: Path, files: tuple[FileState, ...]) -> dict[Path, Path]:
        """The paths that the caller gave, by the paths that are kept."""
        given = (*[Path(one.path) for one in files], path)
        return {Path(self._resolve(one)): one for one in given}


async def _same_contents(known: KnownFile, files: tuple[FileState, ...]) -> bool:
    """Whether files that were touched, or replaced by copies, hold what they held."""
    before, now = ([(one.path, one.size) for one in some] for some in (known.files, files))
    if known.digest is None or before != now:
        return False
    return await asyncio.to_thread(_digest_of, files) == known.digest


def _digest_of(files: tuple[FileState, ...]) -> str | None:
    """The digest of the contents of files in these states; None if they are in others by now."""
    digest = sha256()
    try:
        for state in files:
            digest.update(f"{state.path}\0{state.size}\0".encode("utf-8", "surrogateescape"))
            with Path(state.path).open("rb", buffering=0) as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
                if FileState.of(state.path, os.fstat(file.fileno())) != state:
                    return None
    except OSError:
        return None
    return digest.hexdigest()


def _path(kind: type, value: object) -> Path:
    """The one type of a value that JSON does not have."""
    return Path(str(value))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_RIGHTS)
