"""The body cache: bytes of bodies in memory, by address, within a bound.

Invariant: the bytes held never exceed ``MAX_BYTES``. The next request shows a body that was just
appended, so an appended body replaces the oldest ones; a fetched body is kept only where there is
room. A view larger than the bound reads the rest from the store for each request, and the memory
does not grow.

Bodies that were appended since the last request have a smaller bound of their own, ``MAX_NEW``: a
program that adds a long history may never make a request of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from eventctx.log.integrity import sound_bodies
from eventctx.log.record import Body
from eventctx.log.store import Address, EventStore

MAX_BYTES = 32 * 2**20
"""Bytes of bodies kept in memory for one session."""

MAX_NEW: Final = 4 * 2**20
"""Bytes of them, with what each entry takes, that no request has asked for since their append."""

ENTRY_BYTES: Final = 250
"""Memory of an entry besides its body; measured on CPython 3.11 to 3.13."""

Texts = dict[tuple[int, int], bytes | None]
"""Stored bytes by ``(position, index)``; None for an erased body."""

_Held = OrderedDict[tuple[int, int], bytes | None]


class BodyCache:
    """Bodies of one session's view. Safe to use from several threads."""

    def __init__(self, store: EventStore, stream: str, max_bytes: int = MAX_BYTES) -> None:
        self._store = store
        self._stream = stream
        self._max_bytes = max_bytes
        # A collection of garbage within the lock may run code that lets a session go.
        self._lock = threading.RLock()
        self._held: _Held = OrderedDict()
        self._new: _Held = OrderedDict()
        self._new_bytes = 0
        self.bytes_held = 0

    @property
    def memory(self) -> int:
        """About how many bytes of memory the bodies and their entries take."""
        return self.bytes_held + len(self) * ENTRY_BYTES

    def add(self, position: int, bodies: Sequence[Body]) -> None:
        """Keep the bodies of the record at ``position``, which was just appended."""
        with self._lock:
            for index, body in enumerate(bodies):
                size = len(body.data or b"")
                self._new[position, index] = body.data
                self._new_bytes += size
                self.bytes_held += size
            while self._new and self._new_bytes + len(self._new) * ENTRY_BYTES > MAX_NEW:
                self._new_bytes -= self._drop_oldest(self._new)
            while self.bytes_held > self._max_bytes:
                if self._held:
                    self._drop_oldest(self._held)
                else:
                    self._new_bytes -= self._drop_oldest(self._new)

    def _drop_oldest(self, held: _Held) -> int:
        _, oldest = held.popitem(last=False)
        size = len(oldest or b"")
        self.bytes_held -= size
        return size

    async def texts(self, wanted: Sequence[tuple[int, int]]) -> Texts:
        """Stored bytes of ``wanted``. One call to the store reads all that are not in memory.

        A body is checked when it is read, so once while it stays. Raises LogCorrupted.
        """
        with self._lock:
            held = self._asked_for()
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
                        self.bytes_held += len(body.data or b"") - len(held.get(address) or b"")
                        held[address] = body.data
        return texts

    def keep_only(self, wanted: Iterable[tuple[int, int]]) -> None:
        """Forget the bodies that a view with ``wanted`` no longer shows."""
        with self._lock:
            held = self._asked_for()
            kept: _Held = OrderedDict()
            kept.update((place, held[place]) for place in wanted if place in held)
            self._held = kept
            self.bytes_held = sum(len(data or b"") for data in kept.values())

    def __len__(self) -> int:
        return len(self._held) + len(self._new)

    def clear(self) -> None:
        """Forget all bodies: after a conflict their positions may belong to other records."""
        with self._lock:
            self._held, self.bytes_held = OrderedDict(), 0
            self._forget_new()

    def _asked_for(self) -> _Held:
        """All bodies that are held, now that a request asks for some: none of them is new."""
        for place in self._held.keys() & self._new.keys():
            self.bytes_held -= len(self._held.pop(place) or b"")
        self._held.update(self._new)
        self._forget_new()
        return self._held

    def _forget_new(self) -> None:
        """Empty the new ones; a large empty dict would keep its memory."""
        if self._new:
            self._new, self._new_bytes = OrderedDict(), 0
