"""Key frames in files next to a store: one file a session, replaced whole, worth nothing alone.

A file says which records its frames were made at, by digest; it is used only where the store holds
these. It holds no text of a message. Anybody may delete it, and what cannot be read or written is
folded again. A cache is never evidence: each frame has a digest with a key of this user's, so one
that another hand wrote or changed is folded again, too. Without that key no file is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from typing import Final

from eventctx.errors import DecodeError
from eventctx.log.private_files import make_folder, own_key, whole_file
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.snapshot import VERSION, LoadedFrames, StoredFrame
from eventctx.stores.location import default_key

SUFFIX: Final = ".eventctx-timelines"
"""Suffix of the folder next to the store's file."""

_MAGIC: Final = b"eventctx timeline\n"
_HEAD: Final = struct.Struct(">I")
_FRAME: Final = struct.Struct(">QII32s")
"""Position, lengths of frame and block, and the digest of the record."""

_SEAL: Final = 32
"""Bytes of the keyed digest after each frame, which covers the seal before it, too."""

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
            data = self._path(stream).read_bytes()
            frames = list(_frames_in(data, own_key(default_key(), make=False)))
            return LoadedFrames(frames) if frames else None
        except FileNotFoundError:
            return None
        except (OSError, DecodeError) as error:
            _log.debug("the frames of %r cannot be read: %s", stream, error)
            return None

    def _save(
        self, stream: str, before: TimelineState | None, fresh: Sequence[StoredFrame]
    ) -> None:
        path = self._path(stream)
        try:
            key = own_key(default_key(), make=True)
            kept: list[StoredFrame] = []
            if before is not None:
                kept = [
                    one
                    for one in _frames_in(path.read_bytes(), key)
                    if one.position <= before.position
                ]
                if not kept or kept[-1].digest != before.digest:
                    return  # another process replaced them; its frames are as good
            elif path.exists() and not self._ours(path):
                return
            make_folder(self._folder)
            with whole_file(path) as file:
                seal = _HEAD.pack(VERSION)
                file.write(_MAGIC + seal)
                for one in (*kept, *fresh):
                    lengths = len(one.frame), len(one.block)
                    head = _FRAME.pack(one.position, *lengths, one.digest)
                    seal = _seal(key, seal, head, one.frame, one.block)
                    file.writelines((head, one.frame, one.block, seal))
        except (OSError, DecodeError) as error:
            _log.debug("the frames of %r cannot be kept: %s", stream, error)

    @staticmethod
    def _ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC


def _seal(key: bytes, *parts: bytes | memoryview) -> bytes:
    sealed = hashlib.blake2b(key=key, digest_size=_SEAL)
    for part in parts:
        sealed.update(part)
    return sealed.digest()


def _frames_in(data: bytes, key: bytes) -> Iterator[StoredFrame]:
    """The frames of a file, of this version. Raises DecodeError for damage, and for a foreign hand.

    The lengths in a frame's head are covered, so no byte can move from one part to another.
    """
    seal = _HEAD.pack(VERSION)
    at = len(_MAGIC) + len(seal)
    if data[:at] != _MAGIC + seal:
        return
    while at < len(data):
        try:
            position, frame, block, digest = _FRAME.unpack_from(data, at)
        except struct.error as error:
            raise DecodeError(f"a file of key frames is damaged: {error}") from error
        begin, start = at, at + _FRAME.size
        middle, end = start + frame, start + frame + block
        at = end + _SEAL
        seal = _seal(key, seal, memoryview(data)[begin:end])
        if at > len(data) or not compare_digest(seal, data[end:at]):
            raise DecodeError("a file of key frames is damaged, or another hand wrote it")
        yield StoredFrame(position, digest, data[start:middle], data[middle:end])
