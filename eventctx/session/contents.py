"""A session's contents in memory: bodies by their addresses, and the lines of the transcript.

``BodyCache`` serves requests. Invariant: the bytes that it holds never exceed ``MAX_BYTES``. The
next request shows a body that was just appended, so an appended body replaces the oldest ones; a
fetched body is kept only where there is room. A view larger than the bound reads the rest from the
store for each request, and the memory does not grow. Bodies that were appended since the last
request have a smaller bound of their own, ``MAX_NEW``: a program that adds a long history may never
make a request of it.

``TranscriptLines`` folds the places of messages from the records on demand. Its *rows* are the
stored bytes of the whole transcript, in its order, held while a host asks for them often, perhaps
after every tool. From the store that costs a read of every body and the check of its digest; from
memory only the decoding for the caller. While rows are held, the fold follows the drafts that this
process appends. So it is ahead of the disk, and is forgotten when one of them was not written. It
reads the records of other writers from the store, after the last record that it folded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from eventctx.log.integrity import sound_bodies
from eventctx.log.record import Body, Draft, Record, place
from eventctx.log.store import Address, EventStore
from eventctx.messages.encoding import encode_message, pause_collector
from eventctx.projections import transcript
from eventctx.projections.transcript import TranscriptLine, TranscriptState
from eventctx.projections.view.render import ERASED
from eventctx.projections.view.series import Series
from eventctx.projections.view.state import ViewState

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
            texts: Texts = {at: held[at] for at in wanted if at in held}
        missing = [Address(*at) for at in wanted if at not in texts]
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
            kept.update((at, held[at]) for at in wanted if at in held)
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
        for at in self._held.keys() & self._new.keys():
            self.bytes_held -= len(self._held.pop(at) or b"")
        self._held.update(self._new)
        self._forget_new()
        return self._held

    def _forget_new(self) -> None:
        """Empty the new ones; a large empty dict would keep its memory."""
        if self._new:
            self._new, self._new_bytes = OrderedDict(), 0


LINE_BYTES: Final = 27
"""Memory of one line: three numbers, and room to grow."""

TIME_BYTES: Final = 170
"""Memory of the time of one line; measured on CPython 3.11 to 3.13."""

ERASED_ROW: Final = encode_message({"role": "user", "content": ERASED})
"""The message that replaces an erased one in a transcript."""

ROW_BYTES: Final = 50
"""Memory of a row besides its body; measured on CPython 3.11 to 3.13."""

MAX_ROW_BYTES: Final = 32 * 2**20
"""Memory of the rows of one session; a longer transcript is read from the store each time."""

MAX_UNASKED: Final = 1_024
"""Records since the last question, after which the rows are evicted."""


class TimedTranscript(NamedTuple):
    """A transcript, and the times of the records that brought its messages.

    They are in UTC nanoseconds, by position.
    """

    state: TranscriptState
    times: dict[int, int]


class TranscriptRows:
    """The stored bytes of the messages at ``lines``; each was checked when it was read or made.

    ``unasked`` is the number of records since the last question for them.
    """

    __slots__ = ("_rows", "bytes_held", "lines", "unasked")

    def __init__(self, lines: Series[TranscriptLine], rows: list[bytes]) -> None:
        """``rows`` belong to this object from here on."""
        self.lines = lines
        self._rows = rows
        self.bytes_held = sum(map(len, rows)) + len(rows) * ROW_BYTES
        self.unasked = 0

    @property
    def wanted(self) -> bool:
        """Whether they are worth their memory."""
        return self.unasked <= MAX_UNASKED and self.bytes_held <= MAX_ROW_BYTES

    def asked_for(self) -> list[bytes]:
        """All rows, for a caller that may ask again."""
        self.unasked = 0
        return self._rows.copy()

    def by_address(self) -> dict[Address, bytes]:
        """The rows by the addresses of their bodies."""
        return {line.address: row for line, row in zip(self.lines, self._rows, strict=True)}

    def follow(self, lines: Series[TranscriptLine], new: Mapping[Address, bytes]) -> None:
        """Follow the transcript to ``lines``; ``new`` are the rows that came since."""
        before = len(self.lines)
        if len(lines) == before + len(new) and lines.continues(self.lines):
            self._rows += new.values()
            self.bytes_held += sum(map(len, new.values())) + len(new) * ROW_BYTES
            self.lines = lines
        elif lines is not self.lines:
            known = {**self.by_address(), **new}
            self._rows = [known[line.address] for line in lines]
            self.bytes_held = sum(map(len, self._rows)) + len(self._rows) * ROW_BYTES
            self.lines = lines


class TranscriptLines:
    """The one fold of the transcript in this process. Most sessions never need it.

    Each call continues the fold of the last one. Safe to use from several threads.

    Invariant: the rows that are held hold no content that a folded record erased.
    """

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        # A collection of garbage within the lock may run code that lets a session go.
        self._lock = threading.RLock()
        self._state = transcript.initial()
        self._times: dict[int, int] = {}
        self._timed = False
        self._rows: TranscriptRows | None = None
        self._ahead = False

    @property
    def bytes_held(self) -> int:
        """About how much memory the lines and the rows take."""
        lines = len(self._state.lines) * LINE_BYTES
        return lines + len(self._times) * TIME_BYTES + self.row_bytes

    @property
    def row_bytes(self) -> int:
        """About how much memory the rows take, 0 while none are held."""
        rows = self._rows
        return 0 if rows is None else rows.bytes_held

    def evict(self) -> None:
        """Forget the lines and rows; the next call folds them from the beginning."""
        with self._lock:
            self._state, self._times, self._rows = transcript.initial(), {}, None
            self._ahead = False

    # -- reading ---------------------------------------------------------------------------------

    async def at(self, head: int) -> TranscriptState:
        """The transcript after the record at ``head``. Raises what the store raises."""
        return (await self._timed_at(head)).state

    async def timed_at(self, head: int) -> TimedTranscript:
        """As ``at``, with times, which are kept from the first such call on."""
        self._timed = True
        found = await self._timed_at(head)
        untimed = [line.position for line in found.state.lines if line.position not in found.times]
        if untimed:
            async for record in self._store.read(
                self._stream, start=min(untimed), stop=max(untimed), bodies=False
            ):
                _note_time(found.times, record)
        return found

    async def _timed_at(self, head: int) -> TimedTranscript:
        """As ``timed_at``, but times of lines may be missing."""
        # Another task may fold at the same time, so each call works on a state of its own. Times
        # are added only, and those of a position never change.
        with self._lock:
            state, times = self._state, self._times
        if state.position > head:
            state = transcript.initial()
        if state.position < head:
            state, erased = await self._fold(state, times, head)
            with self._lock:
                if times is self._times and state.position > self._state.position:
                    self._state = state
                    self._rows = None if erased else self._rows
        return TimedTranscript(state, times)

    async def _fold(
        self, state: TranscriptState, times: dict[int, int], head: int
    ) -> tuple[TranscriptState, bool]:
        """The transcript at ``head``, and whether a record on the way there erased something.

        Runs of added messages are one step: in a long session nine of ten records change nothing.
        """
        erased = False
        added: list[int] = []
        position = state.position
        async for record in self._store.read(
            self._stream, start=position + 1, stop=head, bodies=False
        ):
            position = record.position
            kind = record.type
            if self._timed:
                _note_time(times, record)
            if kind == "context:message_added":
                added.append(position)
            elif kind in transcript.FOLDED:
                state = transcript.evolve(transcript.add_messages(state, added), record)
                added = []
            elif kind == "context:erased":
                erased = True
        return transcript.add_messages(state, added)._replace(position=position), erased

    async def rows_at(
        self, head: int, *, hold: bool, view: ViewState | None = None
    ) -> tuple[TranscriptState, list[bytes]]:
        """As ``at``, with the stored bytes of its messages; those of erased ones are replaced.

        Each was checked when it was read or made. With ``hold`` they stay in memory, for a caller
        who may ask again soon. Where no line is known yet, those of a ``view`` after the same
        record save the fold. Raises what the store raises, and LogCorrupted.
        """
        with self._lock:
            if self._rows is not None and self._in_step(self._rows, head):
                return self._state, self._rows.asked_for()
            if self._state.position < 0 and view is not None and view.position == head:
                with pause_collector(len(view.layout.refs)):
                    self._state = transcript.whole_transcript(view) or self._state
                    self._ahead = True  # the view counts deferred events, too
        state = await self.at(head)
        with self._lock:
            known = {} if self._rows is None else self._rows.by_address()
        with pause_collector(len(state.lines)):
            places = [Address(position, index) for _, position, index in state.lines]
        missing = [place_ for place_ in places if place_ not in known] if known else places
        found = await sound_bodies(self._store, self._stream, missing)
        rows = [body.data or ERASED_ROW for body in found]
        if known:
            known.update(zip(missing, rows, strict=True))
            rows = [known[place_] for place_ in places]
        made = TranscriptRows(state.lines, rows)
        with self._lock:
            # An eviction meanwhile may be due to an erasure.
            if hold and made.wanted and state is self._state:
                self._rows = made
        return state, made.asked_for()

    def _in_step(self, rows: TranscriptRows, position: int) -> bool:
        return self._state.position == position and rows.lines is self._state.lines

    # -- following this process's appends --------------------------------------------------------

    def note_appended(self, drafts: Sequence[Draft], head: int) -> None:
        """Follow drafts that were handed to the store, the last of which gets position ``head``.

        Only while rows are held: all others wait for the next question.
        """
        if self._rows is None:
            return
        with self._lock:
            rows, state = self._rows, self._state
            first = head + 1 - len(drafts)
            if rows is None or not self._in_step(rows, first - 1):
                return
            new: dict[Address, bytes] = {}
            for position, draft in enumerate(drafts, first):
                if draft.type in transcript.FOLDED:
                    # A draft has no digest before it is stored; the fold needs none.
                    record = place(draft, self._stream, position, -1, b"")
                    if self._timed:
                        _note_time(self._times, record)
                    state = transcript.evolve(state, record)
                    for index, body in enumerate(draft.bodies):
                        new[Address(position, index)] = body.data or ERASED_ROW
            self._state, self._ahead = state._replace(position=head), True
            rows.follow(state.lines, new)
            rows.unasked += len(drafts)
            if not rows.wanted or any(draft.type == "context:erased" for draft in drafts):
                self._rows = None

    def forget(self) -> None:
        """Forget what was folded ahead of the disk: some of it was not written."""
        if self._ahead:
            self.evict()


def _note_time(times: dict[int, int], record: Record) -> None:
    if record.bodies and record.type.startswith("context:message"):
        times[record.position] = record.time
