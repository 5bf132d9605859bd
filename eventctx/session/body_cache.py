"""The body cache: bytes of bodies in memory, by address, within a bound.

Invariant: the bytes held never exceed ``MAX_BYTES``. The next request shows a body that was just
appended, so an appended body replaces the oldest ones; a fetched body is kept only where there is
room. A view larger than the bound reads the rest from the store for each request, and the memory
does not grow.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from eventctx.log.record import Body
from eventctx.log.soundness import sound_bodies
from eventctx.log.store import Address, EventStore

MAX_BYTES = 32 * 2**20
"""Bytes of bodies kept in memory for one session."""

Texts = dict[tuple[int, int], bytes | None]
"""Stored bytes by ``(position, index)``; None for an erased body."""


class BodyCache:
    """Bodies of one session's view. Safe to use from several threads."""

    def __init__(self, store: EventStore, stream: str, max_bytes: int = MAX_BYTES) -> None:
        self._store = store
        self._stream = stream
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[int, int], bytes | None] = OrderedDict()
        self.bytes_held = 0

    def add(self, position: int, bodies: Sequence[Body]) -> None:
        """Keep the bodies of the record at ``position``, which was just appended."""
        with self._lock:
            for index, body in enumerate(bodies):
                self._put((position, index), body.data)
            while self.bytes_held > self._max_bytes:
                _, oldest = self._held.popitem(last=False)
                self.bytes_held -= len(oldest or b"")

    def _put(self, place: tuple[int, int], data: bytes | None) -> None:
        self.bytes_held += len(data or b"") - len(self._held.get(place) or b"")
        self._held[place] = data

    async def texts(self, wanted: Sequence[tuple[int, int]]) -> Texts:
        """Stored bytes of ``wanted``. One call to the store reads all that are not in memory.

        A body is checked when it is read, so once while it stays. Raises LogCorrupted.
        """
        with self._lock:
            held = self._held
            texts: Texts = {place: held[place] for place in wanted if place in held}
        missing = [Address(*place) for place in wanted if place not in texts]
        if missing:
            found = await sound_bodies(self._store, self._stream, missing)
            with self._lock:
                # After a conflict these positions may belong to other records: keep none of them.
                sound = self._held is held
                for address, body in zip(missing, found, strict=True):
                    texts[address] = body.data
                    if sound and self.bytes_held + len(body.data or b"") <= self._max_bytes:
                        self._put(address, body.data)
        return texts

    def keep_only(self, wanted: Iterable[tuple[int, int]]) -> None:
        """Forget the bodies that a view with ``wanted`` no longer shows."""
        with self._lock:
            held = self._held
            kept: OrderedDict[tuple[int, int], bytes | None] = OrderedDict()
            kept.update((place, held[place]) for place in wanted if place in held)
            self._held = kept
            self.bytes_held = sum(len(data or b"") for data in kept.values())

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        """Forget all bodies: after a conflict their positions may belong to other records."""
        with self._lock:
            self._held, self.bytes_held = OrderedDict(), 0
