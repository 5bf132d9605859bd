"""Key frames in files next to a store: one file a session, replaced whole, worth nothing alone.

A file says which records its frames were made at, by digest; it is used only where the store holds
these. It holds no text of a message. Anybody may delete it, and what cannot be read or written is
folded again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from eventctx.errors import DecodeError
from eventctx.log.private_files import make_folder, whole_file
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.snapshot import VERSION, LoadedFrames, StoredFrame, dump

SUFFIX: Final = ".eventctx-timelines"
"""Suffix of the folder next to the store's file."""

_MAGIC: Final = b"eventctx timeline\n"
_HEAD: Final = struct.Struct(">I")
_FRAME: Final = struct.Struct(">QIII32s")
"""Position, lengths of frame and block, their CRC-32, and the digest of the record."""

_log = logging.getLogger("eventctx.timelines")


class FrameFiles:
    """The frames of the sessions of the store at ``store``. No call raises for its files.

    With ``read_only`` the files of others are read, and none is written or deleted.
    """

    def __init__(self, store: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._folder = store.with_name(store.name + SUFFIX)

    async def load(self, stream: str) -> LoadedFrames | None:
        """The frames of a session; None where there are none that can be used."""
        return await asyncio.to_thread(self._load, stream)

    async def save(
        self, stream: str, before: TimelineState | None, fresh: Sequence[TimelineState]
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
            data = self._path(stream).read_bytes()
            frames = list(_frames_in(data))
            return LoadedFrames(frames) if frames else None
        except FileNotFoundError:
            return None
        except (OSError, DecodeError) as error:
            _log.debug("the frames of %r cannot be read: %s", stream, error)
            return None

    def _save(
        self, stream: str, before: TimelineState | None, fresh: Sequence[TimelineState]
    ) -> None:
        path = self._path(stream)
        try:
            kept: list[StoredFrame] = []
            if before is not None:
                kept = [
                    one for one in _frames_in(path.read_bytes()) if one.position <= before.position
                ]
                if not kept or kept[-1].digest != before.digest:
                    return  # another process replaced them; its frames are as good
            elif path.exists() and not self._ours(path):
                return
            make_folder(self._folder)
            with whole_file(path) as file:
                file.write(_MAGIC + _HEAD.pack(VERSION))
                for one in (*kept, *dump(fresh, before)):
                    checked = crc32(one.block, crc32(one.frame))
                    lengths = len(one.frame), len(one.block)
                    file.write(_FRAME.pack(one.position, *lengths, checked, one.digest))
                    file.write(one.frame)
                    file.write(one.block)
        except (OSError, DecodeError) as error:
            _log.debug("the frames of %r cannot be kept: %s", stream, error)

    @staticmethod
    def _ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC


def _frames_in(data: bytes) -> Iterator[StoredFrame]:
    """The frames of a file, of this version. Raises DecodeError for damage."""
    at = len(_MAGIC) + _HEAD.size
    if data[:at] != _MAGIC + _HEAD.pack(VERSION):
        return
    while at < len(data):
        try:
            position, frame, block, checked, digest = _FRAME.unpack_from(data, at)
        except struct.error as error:
            raise DecodeError(f"a file of key frames is damaged: {error}") from error
        start = at + _FRAME.size
        middle, at = start + frame, start + frame + block
        found = StoredFrame(position, digest, data[start:middle], data[middle:at])
        if at > len(data) or crc32(found.block, crc32(found.frame)) != checked:
            raise DecodeError("a file of key frames is damaged")
        yield found
