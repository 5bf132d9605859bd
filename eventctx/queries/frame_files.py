"""Key frames in files next to a store: one file a session, worth nothing alone.

A file says which records its frames were made at, by digest; it is used only where the store holds
these. It holds no text of a message. Anybody may delete it, and what cannot be read or written is
folded again. A cache is never evidence: each frame's head has a digest with a key of this user's,
which covers the heads before it, and has the digests of the frame's parts. So a frame that another
hand wrote, changed, took out or moved is folded again, too. Without that key no file is used.

Heads are read when a session is first asked of; of a large file, a part is read when an answer
needs it, so a session of a million messages costs as much as its heads and some parts. New frames
are written at the end, and the bytes before them never change.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import os
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from typing import IO, Final, NamedTuple
from weakref import finalize

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.private_files import make_folder, own_key, whole_file
from eventctx.projections.timeline.blocks import PARTS
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.snapshot import FRAME, VERSION, LoadedFrames, StoredFrame
from eventctx.stores.location import default_key

SUFFIX: Final = ".eventctx-timelines"
"""Suffix of the folder next to the store's file."""

LARGE: Final = 8 * 2**20
"""Bytes from which the parts of a file are read and checked one by one, when they are needed."""

_MAGIC: Final = b"eventctx timeline\n"
_VERSION: Final = struct.Struct(">I")
_START: Final = len(_MAGIC) + _VERSION.size
_LENGTH: Final = struct.Struct(">I")
"""The length of a head; after it come the head, its seal and the parts in their order."""

_SEAL: Final = 32
"""Bytes of the keyed digest after each head, which covers the seal before it, too."""

_SUM: Final = 16
"""Bytes of a part's digest in its frame's head."""

_READ_AT_ONCE: Final = 1_024
"""Bytes that hold nearly every head with its seal."""

_log = logging.getLogger("eventctx.timelines")


class _Part(NamedTuple):
    size: int
    digest: bytes


class _Head(msgspec.Struct, array_like=True):
    digest: bytes
    position: int
    lengths: tuple[int, ...]
    changed: tuple[int, ...]
    parts: dict[str, _Part]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Head).decode


class FrameFiles:
    """The frames of the sessions of the store at ``store``. No call raises for its files.

    With ``read_only`` the files of others are read, and none is written or deleted. An answer that
    needs a damaged part of a file that is too large to be checked whole raises DecodeError, once.
    """

    def __init__(self, store: Path, *, read_only: bool = False, large: int = LARGE) -> None:
        self._read_only = read_only
        self._folder = store.with_name(store.name + SUFFIX)
        self._large = large

    async def load(self, stream: str) -> LoadedFrames | None:
        """The frames of a session; None where there are none that can be used."""
        return await asyncio.to_thread(self._load, stream)

    async def save(
        self, stream: str, before: TimelineState | None, fresh: Sequence[StoredFrame]
    ) -> None:
        """Keep ``fresh`` frames after those up to ``before`` (None: they are the first)."""
        if self._read_only:
            return
        await asyncio.to_thread(self._save, stream, before, fresh)

    async def forget(self, stream: str) -> None:
        """Delete a session's frames."""
        if self._read_only:
            return
        with suppress(OSError):
            if self._ours(self._path(stream)):
                self._path(stream).unlink()

    def _path(self, stream: str) -> Path:
        # A session's name may hold what a file's name may not.
        return self._folder / f"{hashlib.sha256(stream.encode()).hexdigest()[:32]}.frames"

    def _load(self, stream: str) -> LoadedFrames | None:
        try:
            key = own_key(default_key(), make=False)
            file: IO[bytes] = self._path(stream).open("rb", buffering=0)
        except OSError:
            return None
        try:
            found = _read_heads(file, key)
            if found.end < self._large:
                file.seek(0)
                file, opened = io.BytesIO(file.read()), file
                opened.close()
            source = _Source(file, self._path(stream))
            stored = [_StoredParts(head.parts, at, source) for head, at in found.frames]
            if found.end < self._large:
                for parts in stored:
                    parts.check()
        except (OSError, DecodeError) as error:
            file.close()
            _log.debug("the frames of %r cannot be read: %s", stream, error)
            return None
        frames = [
            StoredFrame(head.position, head.digest, head.lengths, head.changed, parts)
            for (head, _), parts in zip(found.frames, stored, strict=True)
        ]
        return LoadedFrames(frames) if frames else None

    def _save(
        self, stream: str, before: TimelineState | None, fresh: Sequence[StoredFrame]
    ) -> None:
        path = self._path(stream)
        try:
            key = own_key(default_key(), make=True)
            if before is not None:
                _append(path, key, before, fresh)
            elif not path.exists() or self._ours(path):
                make_folder(self._folder)
                with whole_file(path) as file:
                    version = _VERSION.pack(VERSION)
                    file.write(_MAGIC + version + _as_bytes(fresh, key, version))
        except (OSError, DecodeError) as error:
            _log.debug("the frames of %r cannot be kept: %s", stream, error)

    @staticmethod
    def _ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC


class _Source:
    """The bytes of a file of frames, which it closes. Safe to use from several threads."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.path = path
        self._file = file
        self._lock = threading.Lock()
        finalize(self, file.close)

    def read(self, start: int, size: int) -> bytes:
        """The ``size`` bytes from ``start`` on, or as many as there are. Raises OSError."""
        with self._lock:
            self._file.seek(start)
            return self._file.read(size)


class _StoredParts:
    """The parts of one frame, from ``start`` on in a file; each is read when it is asked for."""

    def __init__(self, parts: dict[str, _Part], start: int, source: _Source) -> None:
        self._parts = parts
        self._start = start
        self._source = source

    def get(self, name: str, /) -> bytes | None:
        """See ``BlockParts``."""
        start = self._start
        for one, part in self._parts.items():
            if one == name:
                return self._checked(start, part)
            start += part.size
        return None

    def check(self) -> None:
        """Raise DecodeError for parts that are not those that were stored."""
        start = self._start
        for part in self._parts.values():
            self._checked(start, part)
            start += part.size

    def _checked(self, start: int, part: _Part) -> bytes:
        try:
            data = self._source.read(start, part.size)
        except OSError as error:
            data, problem = b"", str(error)
        else:
            problem = "other bytes than were stored"
        if compare_digest(_sum(data), part.digest):
            return data
        raise DecodeError(
            f"expected a part of a key frame in {self._source.path}, found {problem}: ask again; "
            "the file is only a cache, and may be deleted"
        )


class _Found(NamedTuple):
    """The whole frames of a file: heads with the places of their parts; the last seal, and end."""

    frames: list[tuple[_Head, int]]
    seal: bytes
    end: int


def _read_heads(file: IO[bytes], key: bytes) -> _Found:
    """The frames of a file, if it is of this version; one that was not written whole is left out.

    Raises DecodeError for damage, and for a foreign hand. The lengths in a head are covered by its
    seal, so no byte can move from one part to another.
    """
    seal = _VERSION.pack(VERSION)
    found: list[tuple[_Head, int]] = []
    if file.read(_START) != _MAGIC + seal:
        return _Found(found, seal, 0)
    at, size = _START, os.fstat(file.fileno()).st_size
    while at < size:
        file.seek(at)
        data = file.read(_READ_AT_ONCE)
        length = _LENGTH.size + int.from_bytes(data[: _LENGTH.size], "big")
        if length + _SEAL > size - at:
            break
        if length + _SEAL > len(data):
            data += file.read(length + _SEAL - len(data))
        seal, before = _seal(key, seal, data[:length]), seal
        if not compare_digest(seal, data[length : length + _SEAL]):
            raise DecodeError("a file of key frames is damaged, or another hand wrote it")
        try:
            head = _decode(data[_LENGTH.size : length])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"a file of key frames is damaged: {error}") from error
        start = at + length + _SEAL
        end = start + sum([part.size for part in head.parts.values()])
        if end > size:
            seal = before
            break
        found.append((head, start))
        at = end
    return _Found(found, seal, at)


def _append(path: Path, key: bytes, before: TimelineState, fresh: Sequence[StoredFrame]) -> None:
    """Write frames after the last one, if that is the one of ``before``. Raises OSError."""
    with path.open("r+b", buffering=0) as file:
        frames, seal, end = _read_heads(file, key)
        if not frames or frames[-1][0].digest != before.digest:
            return  # another process replaced them, or added to them; its frames are as good
        # One write, so that of two processes one writes last, and both write the same.
        data = _as_bytes(fresh, key, seal)
        file.seek(end)
        file.write(data)
        file.truncate(end + len(data))


def _as_bytes(frames: Sequence[StoredFrame], key: bytes, seal: bytes) -> bytes:
    """Frames as a file has them after the one with this seal."""
    written: list[bytes] = []
    for one in frames:
        parts = {name: one.parts.get(name) or b"" for name in (FRAME, *PARTS)}
        parts = {name: data for name, data in parts.items() if data}
        sums = {name: _Part(len(data), _sum(data)) for name, data in parts.items()}
        head = _encode(_Head(one.digest, one.position, one.lengths, one.changed, sums))
        head = _LENGTH.pack(len(head)) + head
        seal = _seal(key, seal, head)
        written += (head, seal, *parts.values())
    return b"".join(written)


def _seal(key: bytes, before: bytes, head: bytes) -> bytes:
    return hashlib.blake2b(before + head, key=key, digest_size=_SEAL).digest()


def _sum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_SUM).digest()
