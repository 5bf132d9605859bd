"""Writes an import's records into a stream that may hold the first of them already.

An import is deterministic, so a second import of a file makes the same records again. As long as
the stream holds records, each new record must equal the stored one at that position, by id and by
the bytes of its bodies; records after the last stored one are appended. The stored stream is read
in step with the import, so memory stays flat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import SessionWasDeleted, SessionWasTakenOver, SourceChanged
from eventctx.importers.source.naming import event_id
from eventctx.log.codec import (
    decode_event,
    encode_event,
    harness_bodies,
    raw_of,
    stored_harness_bodies,
)
from eventctx.log.events import Event, ImportRaw
from eventctx.log.ids import RecordIds, derive_span_id
from eventctx.log.record import Draft, Record, make_body, place
from eventctx.log.store import NO_STREAM, Appended, EventStore, Receipt

_BATCH_RECORDS: Final = 256
_BATCH_BYTES: Final = 1 << 20
_IN_FLIGHT: Final = 2

NO_IDS: Final = RecordIds()
"""The ids of a record outside of any turn."""

_ASIDE: Final = frozenset(
    (
        "session:linked",
        "session:signed",
        "session:end",
        "context:pinned",
        "context:unpinned",
        "context:restored",
        "context:erased",
    )
)
"""Records that others may add to an imported session, as they leave its conversation as it is."""


_TAKEN_OVER: Final = "session:taken_over"


class Content(NamedTuple):
    """A body to be: its bytes and its encoded facts.

    ``plain`` are the unpacked bytes; another release may pack the same into other bytes.
    """

    data: bytes
    facts: bytes
    plain: bytes | None = None


class Track:
    """The stream being written. ``put`` matches or appends one record and returns it."""

    def __init__(
        self,
        store: EventStore,
        stream: str,
        salt: Callable[[int], bytes],
        now: int,
        *,
        only_match: bool = False,
        rewrites: bool = False,
        noted: Callable[[Receipt], None] | None = None,
    ) -> None:
        """``now`` (UTC nanoseconds) is used for the times of a file that has none.

        ``noted`` is called when all that was put is in the store, if any of it was new.

        With ``only_match`` no record is appended: one that is new raises SourceChanged.
        ``rewrites`` as in the table of formats.
        """
        self.stream = stream
        self.added = 0
        self.time: int | None = None
        self.aside: list[Record] = []
        self.volatile: set[bytes] = set()
        self.observe: Callable[[Record], None] = lambda record: None
        self._store = store
        self._salt = salt
        self._now = now
        self._only_match = only_match
        self._rewrites = rewrites
        self._noted = noted
        self._receipt: Receipt | None = None
        self._before_first = True
        self._stored: AsyncIterator[Record] | None = None
        self._next: Record | None = None
        self._position = -1
        self._pending: list[Draft] = []
        self._pending_bytes = 0
        self._in_flight: deque[Awaitable[Appended]] = deque()

    async def open(self) -> None:
        """Begin at the start of the stream, if it exists. Raises SessionWasDeleted."""
        info = await self._store.head(self.stream)
        if info is not None and info.deleted:
            raise SessionWasDeleted(self.stream)
        if info is not None:
            self._stored = self._store.read(self.stream)
            await self._advance()

    # -- stored records --------------------------------------------------------------------------

    @property
    def holds_records(self) -> bool:
        """Whether the stream has records, matched or appended, or still to be matched."""
        return self._position >= 0

    @property
    def next(self) -> Record | None:
        """The stored record that the next one must match; None if the next one is appended."""
        return self._next

    async def _advance(self) -> None:
        while self._stored is not None:
            record = await anext(self._stored, None)
            if record is None:
                self._stored, self._next = None, None
                return
            self._position = record.position
            if record.position == 0:
                self._now = record.time  # that of the first import, where the file has no time
            self._next = record
            if record.type == _TAKEN_OVER:
                raise SessionWasTakenOver(self.stream, record.time)
            if not self._is_aside(record):
                return
            self.aside.append(record)
            self.observe(record)

    async def pass_over(self) -> None:
        """Take the next stored record, which an earlier import made and this one does not."""
        stored = self._next
        if stored is not None:
            await self._advance()
            self.observe(stored)

    def _is_aside(self, record: Record) -> bool:
        if record.type == "import:raw":
            event = decode_event(record)
            if isinstance(event, ImportRaw) and event.lines == (0, 0):
                self.volatile.add(record.id)
                return True
        return record.type in _ASIDE

    def _match(
        self, stored: Record, event_id: bytes, event: Event, line: int, data: Sequence[Content]
    ) -> None:
        kind = str(event.__struct_config__.tag)
        where = f"session {self.stream!r}, position {stored.position}"
        if stored.id != event_id or stored.type != kind:
            raise SourceChanged(
                f"line {line}: expected the record that was imported there before ({kind}), found "
                f"{stored.type} ({where}): the file was changed before this line, the session was "
                "continued, or an earlier version of eventctx read the file otherwise; import it "
                "as another session with --session NEW"
            )
        same = len(stored.bodies) == len(data)
        for body, content in zip(stored.bodies, data, strict=False):
            # An erased body has no data to compare.
            same = same and (
                body.data is None
                or body.data == content.data
                or (content.plain is not None and raw_of(stored) == content.plain)
            )
        if not same and not (self._rewrites and kind == "import:raw"):
            raise SourceChanged(
                f"line {line}: expected the text that was imported before, found another "
                f"({where}); import the file as another session with --session NEW"
            )
        # An earlier release knew no observations, but that a harness wrote them.
        if (
            harness_bodies(event).harness
            != stored_harness_bodies(stored.type, stored.payload).harness
        ):
            raise SourceChanged(
                f"line {line}: expected a message of the speaker that was imported before, found "
                f"another ({where}): an earlier release read this format in another way; import "
                "the file as another session with --session NEW"
            )

    async def check_ours(self) -> None:
        """Raise SessionWasTakenOver if a later record of the stream says so."""
        if self._next is not None:
            await check_not_taken_over(self._store, self.stream, self._next.position)

    # -- writing ---------------------------------------------------------------------------------

    def _dated(self, time: int) -> None:
        """Take the time of a record that the file dates.

        The first one after the header dates what came before it: a header without a time, or one
        that was written after the messages, as in a session that was branched from another one.
        """
        if self._before_first and self._position >= 0:
            self._before_first = False
            first = time if self.time is None else min(self.time, time)
            self._pending = [msgspec.structs.replace(one, time=first) for one in self._pending]
        self.time = time

    @property
    def position(self) -> int:
        """The position that the next record will have."""
        return self._position if self._next is not None else self._position + 1

    async def put(
        self,
        event: Event,
        event_id: bytes,
        line: int,
        time: int | None,
        ids: RecordIds = NO_IDS,
        data: Sequence[Content] = (),
    ) -> Record:
        """Match or append one record.

        ``time`` is what the file says, also where it runs backwards; a record without one has that
        of the last record with one.
        """
        if time is not None:
            self._dated(time)
        if self.aside and event.__struct_config__.tag in _ASIDE:
            # One that this import wrote itself before, and met when it read the stream.
            known = next((one for one in self.aside if one.id == event_id), None)
            if known is not None:
                return known
        stored = self._next
        if stored is not None:
            self._match(stored, event_id, event, line, data)
            self.observe(stored)  # before what is set aside after it
            await self._advance()
            return stored
        if self._only_match:
            raise SourceChanged(f"line {line}: session {self.stream!r} is that of another file")
        kind, version, payload = encode_event(event)
        bodies = tuple([make_body(c.data, c.facts, self._salt) for c in data]) if data else ()
        moment = self._now if self.time is None else self.time
        draft = Draft(event_id, kind, version, moment, payload, bodies, *ids)
        self._position += 1
        record = place(draft, self.stream, self._position, -1, b"")
        self._pending.append(draft)
        self._pending_bytes += len(payload) + sum([len(c.data) for c in data])
        if len(self._pending) >= _BATCH_RECORDS or self._pending_bytes >= _BATCH_BYTES:
            await self.flush(_IN_FLIGHT)
        self.observe(record)
        return record

    async def written(self) -> AsyncIterator[Record]:
        """The records so far of a stream that was empty, those that wait to be appended, too."""
        waiting, first = list(self._pending), self._position + 1 - len(self._pending)
        await self._settle(0)
        if first > 0:
            async for record in self._store.read(self.stream):
                yield record
        for position, draft in enumerate(waiting, first):
            yield place(draft, self.stream, position, -1, b"")

    async def flush(self, in_flight: int = 0) -> None:
        """Append pending drafts, and wait until at most ``in_flight`` appends are under way."""
        if self._pending:
            drafts, self._pending, self._pending_bytes = self._pending, [], 0
            before = self._position - len(drafts)
            expected = before if before >= 0 else NO_STREAM
            self._in_flight.append(self._store.append(self.stream, drafts, expected))
            self.added += len(drafts)
        await self._settle(in_flight)
        if not in_flight and self._receipt is not None:
            receipt, self._receipt = self._receipt, None
            if self._noted is not None:
                self._noted(receipt)

    async def _settle(self, in_flight: int) -> None:
        while len(self._in_flight) > in_flight:
            self._receipt = (await self._in_flight.popleft()).receipt


async def check_not_taken_over(store: EventStore, stream: str, start: int = 0) -> None:
    """Raise SessionWasTakenOver if a record of the stream, from ``start`` on, says so."""
    async for record in store.read(stream, start=start, bodies=False):
        if record.type == _TAKEN_OVER:
            raise SessionWasTakenOver(stream, record.time)


class LineIds:
    """Makes ids from the source, the line, the type of the event and the ordinal in that line.

    ``line`` is the line that is being read; -1 before the first one.
    """

    def __init__(self, key: str, stream: str) -> None:
        """``key`` names the source, ``stream`` is the session."""
        self.line = -1
        self._key = key
        self._stream = stream
        self._counted = -1
        self._ordinals: dict[str, int] = {}
        self._opening: dict[str, bytes] = {}

    def return_to_last(self) -> None:
        """Go on from the last line that became a record, for what the file's end adds."""
        self.line = self._counted

    def at_end(self, event: type[Event]) -> bytes | None:
        """The id that a record of this type had if the file had ended before the present line.

        None where the present line has become a record already.
        """
        if self.line == self._counted:
            return None
        kind = str(event.__struct_config__.tag)
        return event_id(self._key, self._counted, kind, self._ordinals.get(kind, 0))

    def of(self, event: type[Event]) -> bytes:
        """The id of the next record of this type from the present line."""
        if self.line != self._counted:
            self._counted = self.line
            self._ordinals.clear()
        kind = str(event.__struct_config__.tag)
        ordinal = self._ordinals.get(kind, 0)
        self._ordinals[kind] = ordinal + 1
        return event_id(self._key, self.line, kind, ordinal)

    def new_span(self, event: type[Event]) -> str:
        """A span's id, derived from the id of the record of this type that will begin it."""
        new_id = self.of(event)
        span_id = derive_span_id(self._stream, new_id)
        self._opening[span_id] = new_id
        return span_id

    def for_record(self, event: type[Event], ids: RecordIds) -> bytes:
        """The id of a record in the span of ``ids``: the one that the span's own id was made of."""
        return self._opening.pop(ids.span_id or "", None) or self.of(event)
