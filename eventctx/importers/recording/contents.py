"""The contents of a file as they are stored: bodies with their numbers, raw parts, counts.

A message that cannot be stored has a slot in the file but no number. Parts that became no message
are written in batches: one ``import:raw`` record for many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import InvalidMessage, SourceChanged
from eventctx.importers.recording.track import NO_IDS, Content, Track
from eventctx.importers.source.items import Branched, Raw, Warned
from eventctx.importers.source.naming import event_id
from eventctx.log.codec import decode_event, pack, raw_of
from eventctx.log.events import ImportRaw, MessagesSet
from eventctx.log.record import Record
from eventctx.messages.encoding import encode_message, may_be_too_deep
from eventctx.messages.facts import Facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.overlap import runs_of_numbers


class Stored(NamedTuple):
    """A message's body to be, and the facts in it."""

    content: Content
    facts: Facts


class Unstorable(NamedTuple):
    """The bytes of a message that cannot be stored as one, and the warning that says why."""

    raw: Raw
    warning: Warned


def content_of(
    line: int,
    message: dict[str, Any],
    facts: Facts | None = None,
    data: bytes | None = None,
    *,
    by_harness: bool = False,
    observation: bool = False,
) -> Stored | Unstorable:
    """The body of a message of ``line``; one that is too deep, or has no role, has none.

    ``facts`` are the message's own and ``data`` its encoding, where they were made already; with
    ``data``, the message is one that was decoded from JSON.
    """
    try:
        if data is None or may_be_too_deep(data):
            data = encode_message(message)
        if facts is None:
            facts = read_facts(message, by_harness=by_harness, observation=observation)
    except InvalidMessage as error:
        raw = Raw(line, "unstorable", msgspec.json.encode(message), understood=False)
        return Unstorable(raw, Warned(line, str(error)))
    return Stored(Content(data, encode_facts(facts)), facts)


def contents_of(
    line: int, messages: Iterable[dict[str, Any]]
) -> tuple[list[Stored], list[Unstorable]]:
    """The bodies of several messages, and those messages that have none."""
    found = [content_of(line, message) for message in messages]
    stored = [one for one in found if isinstance(one, Stored)]
    return stored, [one for one in found if isinstance(one, Unstorable)]


class TranscriptSlots:
    """Counts messages in file order. One that could not be stored has a place but no number."""

    def __init__(self) -> None:
        self._next = 0
        self._unstorable: list[int] = []

    def took(self, *, stored: bool) -> None:
        """Count a message."""
        if not stored:
            self._unstorable.append(self._next)
        self._next += 1

    def number(self, place: int) -> int:
        """The number of the message at a place, or of the next one that has a number."""
        return place - bisect_left(self._unstorable, place)

    def branched(self, item: Branched) -> tuple[MessagesSet, tuple[Content, ...], list[Unstorable]]:
        """The event of a conversation that continues from an earlier point, and its bodies.

        The last value are the messages that come back and cannot be stored.
        """
        contents: list[Content] = []
        unstorable: list[Unstorable] = []
        numbers: list[int] = []
        harness: list[int] = []
        for place, one in enumerate(item.order):
            if isinstance(one, dict):
                found = content_of(item.line, one, by_harness=place in item.harness)
                number = self.number(self._next)
                self.took(stored=isinstance(found, Stored))
                if isinstance(found, Unstorable):
                    unstorable.append(found)
                    continue
                if place in item.harness:
                    harness.append(len(contents))
                contents.append(found.content)
            elif one in self._unstorable:
                continue
            else:
                number = self.number(one)
            numbers.append(number)
        event = MessagesSet(order=runs_of_numbers(numbers), harness=tuple(harness))
        return event, tuple(contents), unstorable


_KEPT_WARNINGS: Final = 100


class ImportCounts:
    """Counts over the whole file, both of new contents and of those imported before."""

    def __init__(self) -> None:
        self.messages = self.turns = self.calls = self.compactions = 0
        self.unknown: Counter[str] = Counter()
        self.waiting: list[str] = []
        self.warnings: list[str] = []
        self.warned = 0
        self.links: dict[str, str | None] = {}
        self.answered: set[str] = set()
        self.last_compaction: int | None = None

    def warn(self, item: Warned) -> None:
        """Count a warning, and keep the first ones."""
        self.warned += 1
        if len(self.warnings) < _KEPT_WARNINGS:
            self.warnings.append(f"line {item.line}: {item.text}")


BATCH_BYTES: Final = 128 * 1024
"""A batch takes no further line when it is this large."""


class RawParts:
    """Parts in file order, waiting to be written. ``kinds`` counts all that were added, ``changed``
    is the first line whose part is another one than was imported before.

    The end of a batch depends on where the file ended at its first import, so a second import cuts
    the batches as the stored ones are.
    """

    def __init__(self, track: Track, key: str, source: str, imported_at: int) -> None:
        self.kinds: Counter[str] = Counter()
        self.changed: int | None = None
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
        record = await self._put(new_id, (first, last), kinds, plain)
        if raw_of(record) not in (None, plain):
            self.changed = first if self.changed is None else self.changed
            self._volatile.append(Raw(first, "rewritten", plain, volatile=True))

    async def _put(
        self, new_id: bytes, lines: tuple[int, int], kinds: dict[str, int], plain: bytes
    ) -> Record:
        packed, encoding = pack(plain)
        event = ImportRaw(
            source=self._source,
            lines=lines,
            kinds=kinds,
            imported_at=self._imported_at,
            encoding=encoding,
        )
        content = Content(packed, b"", plain)
        return await self._track.put(event, new_id, lines[0], None, NO_IDS, (content,))
