"""The transcript: every message in conversation order, exactly as received, in view or not.

The fold keeps only addresses; bodies are fetched when the transcript is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from typing import Any, Final, NamedTuple, overload

from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.log.store import Address
from eventctx.projections.view.series import Series
from eventctx.projections.view.state import ViewState

FOLDED: Final = frozenset(("context:message_added", "context:messages_set", "context:cleared"))
"""The types of the records that change a transcript."""


class TranscriptLine(NamedTuple):
    """Message ``number`` and the place of its body."""

    number: int
    position: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here

    @property
    def address(self) -> Address:
        """The address of the body."""
        return Address(self.position, self.index)


class PackedLines:
    """Lines in three columns of numbers: a session of years has a million of them in memory."""

    def __init__(self, lines: Iterable[tuple[int, int, int]] = ()) -> None:
        self._columns = (array("q"), array("q"), array("q"))
        self.extend(lines)

    def append(self, line: TranscriptLine, /) -> None:
        """Add a line at the end."""
        self.extend((line,))

    def extend(self, lines: Iterable[tuple[int, int, int]], /) -> None:
        """Add lines at the end."""
        for column, added in zip(self._columns, zip(*lines, strict=True), strict=False):
            column.extend(added)

    def first(self, count: int, /) -> PackedLines:
        """The first ``count`` lines, as a sequence of their own."""
        found = PackedLines()
        for column, own in zip(found._columns, self._columns, strict=True):
            column.extend(own[:count])
        return found

    def __len__(self) -> int:
        # The last column is the last to grow.
        return len(self._columns[-1])

    def __iter__(self) -> Iterator[TranscriptLine]:
        return starmap(TranscriptLine, zip(*self._columns, strict=False))

    @overload
    def __getitem__(self, index: int, /) -> TranscriptLine: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[TranscriptLine]: ...
    def __getitem__(self, index: int | slice, /) -> TranscriptLine | list[TranscriptLine]:
        found = [column[index] for column in self._columns]
        if isinstance(index, slice):
            return list(starmap(TranscriptLine, zip(*found, strict=True)))
        return TranscriptLine(*found)  # type: ignore[arg-type]


def _series(lines: Iterable[tuple[int, int, int]] = ()) -> Series[TranscriptLine]:
    return Series.backed_by(PackedLines(lines))


class TranscriptState(NamedTuple):
    """The transcript after some record: its lines, and the number of the next message."""

    position: int
    next_number: int
    lines: Series[TranscriptLine]


def initial() -> TranscriptState:
    """The transcript of an empty stream."""
    return TranscriptState(-1, 0, _series())


def evolve(state: TranscriptState, record: Record) -> TranscriptState:
    """The transcript after ``record``."""
    kind = record.type
    if kind == "context:message_added":
        number = state.next_number
        lines = state.lines.append(TranscriptLine(number, record.position, 0))
        return TranscriptState(record.position, number + 1, lines)
    if kind == "context:messages_set":
        return _set(state, record)
    if kind == "context:cleared":
        return TranscriptState(record.position, state.next_number, _series())
    return state._replace(position=record.position)


def add_messages(state: TranscriptState, positions: Sequence[int]) -> TranscriptState:
    """The transcript after ``context:message_added`` at each of these positions, in one step.

    The result is that of ``evolve`` over these records; one step is faster for many of them.
    """
    if not positions:
        return state
    lines = [
        TranscriptLine(number, at, 0) for number, at in enumerate(positions, state.next_number)
    ]
    return TranscriptState(
        positions[-1], state.next_number + len(positions), state.lines.extend(lines)
    )


def whole_transcript(view: ViewState) -> TranscriptState | None:
    """The transcript of a view that shows all of it; None if a compaction changed the view.

    The result is that of ``evolve`` over the view's records.
    """
    refs = view.layout.refs
    if view.plan_position is not None or view.gone or len(refs) != view.messages:
        return None
    lines = [(ref.number, ref.position, ref.index) for ref in refs]
    return TranscriptState(view.position, view.next_number, _series(lines))


def _set(state: TranscriptState, record: Record) -> TranscriptState:
    event: Any = decode_known(record)
    known = {line.number: line for line in state.lines}
    fresh = 0
    lines: list[TranscriptLine] = []
    for first, last in event.order:
        for number in range(first, last + 1):
            if number in known:
                lines.append(known[number])
            else:
                lines.append(TranscriptLine(number, record.position, fresh))
                fresh += 1
    return TranscriptState(record.position, state.next_number + fresh, _series(lines))
