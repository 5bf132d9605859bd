"""Parts of a file that became no message, in batches: one ``import:raw`` record for many."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final

from eventctx.errors import SourceChanged
from eventctx.importers.recording.track import NO_IDS, Content, Track
from eventctx.importers.source.items import Raw
from eventctx.importers.source.naming import event_id
from eventctx.log.codec import decode_event
from eventctx.log.events import ImportRaw
from eventctx.log.raw_parts import pack
from eventctx.log.record import Record

BATCH_BYTES: Final = 128 * 1024
"""A batch takes no further line when it is this large."""


class RawParts:
    """Parts in file order, waiting to be written. ``kinds`` counts all that were added.

    The end of a batch depends on where the file ended at its first import, so a second import cuts
    the batches as the stored ones are.
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
        self._size_at = (-1, 0)

    async def add(self, item: Raw) -> None:
        """Take a part; write a full batch before it, unless that would cut a line in two."""
        self.kinds[item.kind] += 1
        if item.volatile:
            self._volatile.append(item)
            return
        full = self._bytes >= BATCH_BYTES and self._parts[-1].line != item.line
        if full and self._track.next is None:
            await self._write(len(self._parts))
        self._parts.append(item)
        self._bytes += len(item.data) + 1

    async def match(self, needed: bool = False) -> None:
        """Match the stored batches that come next in the stream.

        ``needed``: a record of another type follows, so every part of a stored batch must be here.
        Raises SourceChanged if one is missing.
        """
        while (stored := self._track.next) is not None and stored.type == "import:raw":
            size = self._size_of(stored)
            if not 0 < size <= len(self._parts):
                if not needed:
                    return
                raise SourceChanged(
                    f"line {self._parts[0].line if self._parts else 1}: expected what was "
                    f"imported as position {stored.position} of session {self._track.stream!r}, "
                    "found less; the file was changed: import it with --session NEW"
                )
            await self._write(size)

    def _size_of(self, stored: Record) -> int:
        """Number of parts in a stored batch. It is needed for every part, and decoded once."""
        if self._size_at[0] != stored.position:
            event = decode_event(stored)
            size = sum(event.kinds.values()) if isinstance(event, ImportRaw) else 0
            self._size_at = (stored.position, size)
        return self._size_at[1]

    async def end(self) -> None:
        """Write the remaining parts, then new volatile ones, which their program rewrites."""
        await self.match(needed=True)
        if self._parts and self._track.next is None:
            await self._write(len(self._parts))
        if self._track.next is not None:
            return
        for item in self._volatile:
            digest = blake2b(item.data, digest_size=16).hexdigest()
            new_id = event_id(self._key, 0, item.kind, digest)
            if new_id not in self._track.volatile:
                await self._put(new_id, (0, 0), {item.kind: 1}, item.data)

    async def _write(self, size: int) -> None:
        parts, self._parts = self._parts[:size], self._parts[size:]
        self._bytes = sum([len(part.data) + 1 for part in self._parts])
        first, last = parts[0].line, parts[-1].line
        new_id = event_id(self._key, first, "import:raw", self._written)
        self._written += size
        kinds = dict(Counter([part.kind for part in parts]))
        plain = b"\n".join([part.data for part in parts])
        await self._put(new_id, (first, last), kinds, plain)

    async def _put(
        self, new_id: bytes, lines: tuple[int, int], kinds: dict[str, int], plain: bytes
    ) -> None:
        packed, encoding = pack(plain)
        event = ImportRaw(
            source=self._source,
            lines=lines,
            kinds=kinds,
            imported_at=self._imported_at,
            encoding=encoding,
        )
        content = Content(packed, b"", plain)
        await self._track.put(event, new_id, lines[0], None, NO_IDS, (content,))
