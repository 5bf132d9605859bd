"""Snapshots and checkpoints, in a stream of their own; to lose them loses nothing.

A snapshot that was replaced is destroyed, since it may hold what is erased later. One that is too
large for a message is not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from eventctx.log.store import Snapshot
from eventctx.stores.jetstream.collecting import Stored
from eventctx.stores.jetstream.connection import ApiError, Link
from eventctx.stores.jetstream.layout import token
from eventctx.stores.jetstream.reading import Reader

_HEADER_BYTES: Final = 4096


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A stored snapshot, and a unit near it: where to begin to read what came behind it."""

    position: int
    digest: bytes
    version: int
    data: bytes
    near_first: int = -1
    near_sequence: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode_kept = msgspec.msgpack.Decoder(_Kept).decode
_decode_position = msgspec.msgpack.Decoder(int).decode


class Caches:
    """Snapshots and checkpoints of one store, for use in the event loop of its client."""

    def __init__(self, link: Link, reader: Reader) -> None:
        self._link = link
        self._reader = reader
        self._names = link.names
        self._saves: dict[str, asyncio.Lock] = {}

    async def load_snapshot(self, session: str, name: str) -> Snapshot | None:
        """See ``EventStore.load_snapshot``."""
        subject = self._names.snapshot(session, name)
        async with self._lock(subject):
            found = await self._reader.asking.last_of(self._names.caches, subject)
        if found is None:
            return None
        try:
            kept = _decode_kept(found.data)
        except msgspec.MsgspecError:
            return None
        if 0 <= kept.near_first <= kept.position:
            self._reader.positions.add(session, kept.near_first, kept.near_sequence)
        return Snapshot(kept.position, kept.digest, kept.version, kept.data)

    async def save_snapshot(self, session: str, name: str, snapshot: Snapshot) -> None:
        """Put a snapshot in the place of the last of its name; that of no session is not kept."""
        subject = self._names.snapshot(session, name)
        async with self._lock(subject):  # at once: who loads it later waits
            near = self._reader.positions.before(session, snapshot.position)
            kept = _Kept(
                snapshot.position,
                snapshot.digest,
                snapshot.version,
                snapshot.data,
                *((-1, 0) if near is None else near),
            )
            encoded = _encode(kept)
            if len(encoded) > self._link.client.max_payload - _HEADER_BYTES:
                return
            if await self._reader.heads.head(session) is not None:
                await self._replace(subject, encoded)

    async def drop(self, sessions: Iterable[str]) -> int:
        """Destroy all snapshots of these sessions; returns how many messages went."""
        gone = 0
        for session in sessions:
            of_session = f"{self._names.prefix}.kv.s.{token(session)}."
            for subject, lock in list(self._saves.items()):
                if subject.startswith(of_session):
                    async with lock:  # saves that began before must not come afterwards
                        pass
            for message in await self._all(of_session + "*"):
                await self._destroy(message.sequence)
                gone += 1
        return gone

    async def load_checkpoint(self, name: str) -> int | None:
        """See ``EventStore.load_checkpoint``."""
        subject = self._names.checkpoint(name)
        found = await self._reader.asking.last_of(self._names.caches, subject)
        if found is None:
            return None
        try:
            return _decode_position(found.data)
        except msgspec.MsgspecError:
            return None

    async def save_checkpoint(self, name: str, position: int) -> None:
        """See ``EventStore.save_checkpoint``."""
        subject = self._names.checkpoint(name)
        async with self._lock(subject):
            await self._replace(subject, _encode(position))

    async def _replace(self, subject: str, encoded: bytes) -> None:
        older = await self._all(subject)
        await self._link.request(subject, encoded)
        for message in older:
            await self._destroy(message.sequence)

    async def _destroy(self, sequence: int) -> None:
        """Overwrite a message's bytes, unless another did so meanwhile."""
        with suppress(ApiError):
            stream = self._names.caches
            await self._link.request(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    async def _all(self, subject: str) -> list[Stored]:
        """All messages of a subject, as the leader has them."""
        found: list[Stored] = []
        sequence = 1
        while (
            one := await self._reader.asking.next_of(self._names.caches, subject, sequence)
        ) is not None:
            found.append(one)
            sequence = one.sequence + 1
        return found

    def _lock(self, subject: str) -> asyncio.Lock:
        if len(self._saves) > 1000:
            self._saves = {key: lock for key, lock in self._saves.items() if lock.locked()}
        return self._saves.setdefault(subject, asyncio.Lock())
