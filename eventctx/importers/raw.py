"""What became no message, in batches: one ``import:raw`` record for many parts of a file."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final

from eventctx.codec import decode_event
from eventctx.errors import SourceChanged
from eventctx.events import ImportRaw
from eventctx.importers.items import Raw
from eventctx.importers.naming import event_id
from eventctx.importers.track import NO_IDS, Content, Track

BATCH_BYTES: Final = 128 * 1024
"""A batch is written when it is at least this large; a larger part is one of its own."""


class RawParts:
    """Parts in file order, waiting to be written. ``kinds`` counts all that were added.

    Where a batch ends depends on where the file ended when it was imported first, so on a second
    import batches are cut where the stored ones are.
    """

    def __init__(self, track: Track, key: str, source: str, imported_at: int) -> None:
        self.kinds: Counter[str] = Counter()
        self._track = track
        self._key = key
        self._source = source
        self._imported_at = imported_at
        self._parts: list[Raw] = []
        self._bytes = 0
        self._written = 0
        self._volatile: list[Raw] = []

    async def add(self, item: Raw) -> None:
        """Take a part; write a batch when one is full."""
        self.kinds[item.kind] += 1
        if item.volatile:
            self._volatile.append(item)
            return
        self._parts.append(item)
        self._bytes += len(item.data) + 1
        if self._bytes >= BATCH_BYTES and self._track.next is None:
            await self._write(len(self._parts))

    async def settle(self) -> None:
        """Match the batches that are stored in the place where the next record would go."""
        while (stored := self._track.next) is not None and stored.type == "import:raw":
            event = decode_event(stored)
            size = sum(event.kinds.values()) if isinstance(event, ImportRaw) else 0
            if not 0 < size <= len(self._parts):
                raise SourceChanged(
                    f"line {self._parts[0].line if self._parts else 1}: expected what was "
                    f"imported as position {stored.position} of session {self._track.stream!r}, "
                    "found less; the file was changed: import it with --session NEW"
                )
            await self._write(size)

    async def end(self) -> None:
        """Write what is left, then what the program rewrites as it goes, if that is new."""
        await self.settle()
        if self._parts and self._track.next is None:
            await self._write(len(self._parts))
        if self._track.next is not None:
            return
        for item in self._volatile:
            digest = blake2b(item.data, digest_size=16).hexdigest()
            new_id = event_id(self._key, 0, item.kind, digest)
            if new_id not in self._track.volatile:
                event = ImportRaw(
                    source=self._source,
                    lines=(0, 0),
                    kinds={item.kind: 1},
                    imported_at=self._imported_at,
                )
                content = Content(item.data, b"")
                await self._track.put(event, new_id, 0, None, NO_IDS, (content,))

    async def _write(self, size: int) -> None:
        parts, self._parts = self._parts[:size], self._parts[size:]
        self._bytes = sum([len(part.data) + 1 for part in self._parts])
        first, last = parts[0].line, parts[-1].line
        event = ImportRaw(
            source=self._source,
            lines=(first, last),
            kinds=dict(Counter([part.kind for part in parts])),
            imported_at=self._imported_at,
        )
        new_id = event_id(self._key, first, "import:raw", self._written)
        self._written += size
        content = Content(b"\n".join([part.data for part in parts]), b"")
        await self._track.put(event, new_id, first, None, NO_IDS, (content,))
