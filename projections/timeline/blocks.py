"""The items that a timeline gained between two key frames, as bytes; decoded when first used.

A session of 100,000 messages has some 400 blocks, and a question needs a few parts of a few blocks:
reading all of them would take longer than the fold that the key frames save. So a ``Series`` of a
loaded frame keeps its items in a ``LazySeries``, all frames of a session share its blocks, and a
part of a block is read and decoded when it is asked for.
Invariant: a block is never changed, so it may be decoded at any time and by any version.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, overload
from zlib import compress, decompress
from zlib import error as ZlibError  # noqa: N812 - it is an exception's class

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.wire import BodyAt, WireForm
from eventctx.projections.audit import AuditRow, CompactionRow
from eventctx.projections.explain.changes import Cause, Change, Origin, What
from eventctx.projections.figures import CompactionSizes, RequestSizes
from eventctx.projections.numbering import TimelineRequest, TurnStart
from eventctx.projections.timeline.fold import (
    CacheReport,
    Link,
    Recount,
    SentContent,
    TimelineState,
)
from eventctx.projections.timeline.instructions import Demanding, Phase, Removed, Withdrawal
from eventctx.projections.timeline.runs import ChangedRun, ChangeReason
from eventctx.projections.timeline.views import OtherEntry, ShownView
from eventctx.projections.view.series import Series, with_number

T = TypeVar("T")

_encode: Final = msgspec.msgpack.Encoder().encode


class _Changed(NamedTuple):
    number: int
    what: What
    cause: int
    reason: str
    into: int | None


class _Changes(msgspec.Struct, array_like=True):
    """Changes, each with the place of its cause: one compaction causes hundreds of changes."""

    causes: list[Cause]
    changes: list[_Changed]


def _encode_changes(changes: Sequence[Change]) -> bytes:
    causes: list[Cause] = []
    rows: list[_Changed] = []
    for change in changes:
        if not causes or causes[-1] is not change.cause:
            causes.append(change.cause)
        number, what, _, reason, into = change
        rows.append(_Changed(number, what, len(causes) - 1, reason, into))
    return _encode(_Changes(causes, rows))


_changes_from: Final = msgspec.msgpack.Decoder(_Changes).decode


def _decode_changes(data: bytes) -> list[Change]:
    found = _changes_from(data)
    causes = found.causes
    return [
        Change(number, what, causes[cause], reason, into)
        for number, what, cause, reason, into in found.changes
    ]


def _changes_numbered(data: bytes, number: int) -> list[Change]:
    """The changes to message ``number``; making the others takes far longer than reading them."""
    found = _changes_from(data)
    return [
        Change(number, one.what, found.causes[one.cause], one.reason, one.into)
        for one in found.changes
        if one[0] == number
    ]


class SeriesPart(NamedTuple):
    """A series of the timeline: how it is found in a state, and its items as bytes and back.

    ``numbered`` makes only the items about one message. It is there for the series whose numbers
    a block's ``changed`` bounds: a compaction changes few of a session's messages.
    """

    series: Callable[[TimelineState], Series[Any]]
    encode: Callable[[Sequence[Any]], bytes]
    decode: Callable[[bytes], list[Any]]
    numbered: Callable[[bytes, int], list[Any]] | None = None


def _part(series: Callable[[TimelineState], Series[Any]], item: Any) -> SeriesPart:
    return SeriesPart(series, _encode, msgspec.msgpack.Decoder(list[item]).decode)


PARTS: Final[dict[str, SeriesPart]] = {
    "began": _part(lambda state: state.changes.time.began, TurnStart),
    "ends": _part(lambda state: state.changes.time.ends, tuple[str, int, bool]),
    "numbered": _part(lambda state: state.changes.time.requests, TimelineRequest),
    "origins": _part(lambda state: state.changes.origins, Origin),
    "changes": SeriesPart(
        lambda state: state.changes.changes, _encode_changes, _decode_changes, _changes_numbered
    ),
    "compacted": _part(lambda state: state.changes.compacted, int),
    "requests": _part(lambda state: state.audit.requests, AuditRow),
    "compactions": _part(lambda state: state.audit.compactions, CompactionRow),
    "called": _part(lambda state: state.audit.models, tuple[int, str]),
    "sent": _part(lambda state: state.audit.sent, tuple[int, tuple[int, int, int | None]]),
    "sizes": _part(lambda state: state.audit.sizes.requests, RequestSizes),
    "reports": _part(lambda state: state.audit.sizes.reports, tuple[int, int]),
    "compaction_sizes": _part(lambda state: state.audit.sizes.compactions, CompactionSizes),
    "firsts": _part(lambda state: state.audit.sizes.firsts, tuple[int, int]),
    "shown": _part(lambda state: state.views.shown, ShownView),
    "extras": _part(lambda state: state.views.extras, OtherEntry),
    "runs": _part(lambda state: state.runs.runs, ChangedRun),
    "reasons": _part(lambda state: state.runs.reasons, ChangeReason),
    "recounts": _part(lambda state: state.recounts, Recount),
    "models": _part(lambda state: state.extras.models, str),
    "cached": _part(lambda state: state.extras.cached, CacheReport),
    "forms": _part(lambda state: state.extras.forms, tuple[int, WireForm]),
    "harness": _part(lambda state: state.extras.harness, tuple[BodyAt, bool]),
    "contents": _part(lambda state: state.extras.contents, SentContent),
    "links": _part(lambda state: state.extras.links, Link),
    "demanding": _part(lambda state: state.instructions.demanding, Demanding),
    "phases": _part(lambda state: state.instructions.phases, Phase),
    "removed": _part(lambda state: state.instructions.removed, Removed),
    "withdrawn": _part(lambda state: state.instructions.withdrawn, Withdrawal),
    "replacing": _part(lambda state: state.instructions.replacing, int),
}
"""All series of a timeline, by the name under which a block keeps them."""


def _damaged(problem: object) -> DecodeError:
    return DecodeError(f"a key frame is damaged: {problem}")


def lengths_of(state: TimelineState) -> tuple[int, ...]:
    """The lengths of all series, in the order of ``PARTS``."""
    return tuple([len(part.series(state)) for part in PARTS.values()])


class BlockParts(Protocol):
    """The parts of a block as bytes, such as a dict of them."""

    def get(self, name: str, /) -> bytes | None:
        """The bytes of a part; None where the block has no items of it.

        Raises DecodeError for bytes that were changed since they were stored.
        """
        ...


class EncodedBlock(NamedTuple):
    """The items that all series of a timeline gained since an earlier state.

    ``lengths`` are those of all series, earlier items included, in the order of ``PARTS``.
    ``changed`` are the lowest and the highest number of a changed message; empty for none.
    """

    lengths: tuple[int, ...]
    changed: tuple[int, ...]
    parts: dict[str, bytes]


def encode_block(state: TimelineState, before: Sequence[int]) -> EncodedBlock:
    """The items of each series after the lengths ``before``."""
    parts: dict[str, bytes] = {}
    changed: tuple[int, ...] = ()
    for (name, part), start in zip(PARTS.items(), before, strict=True):
        items = part.series(state)[start:]
        if items:
            parts[name] = compress(part.encode(items), 1)
            if part.numbered is not None:
                numbers = [one.number for one in items]
                changed = min(numbers), max(numbers)
    return EncodedBlock(lengths_of(state), changed, parts)


MOST_DECODED: Final = 32
"""Parts of a session's blocks that are held decoded: some 30 kB each, however long it is."""


class DecodedParts:
    """The parts of a session's blocks that were decoded last. Safe to use from several threads.

    ``damaged``: one of them could not be decoded, or not even be read.
    """

    def __init__(self) -> None:
        self.damaged = False
        self._lock = threading.Lock()
        self._held: dict[tuple[FrameBlock, str], list[Any]] = {}

    def get(self, at: tuple[FrameBlock, str]) -> list[Any] | None:
        """The items of a part, by its block and name; None where they are not held."""
        return self._held.get(at)

    def add(self, at: tuple[FrameBlock, str], items: list[Any]) -> None:
        """Hold the items of a part in place of those that were decoded first."""
        with self._lock:
            self._held[at] = items
            if len(self._held) > MOST_DECODED:
                del self._held[next(iter(self._held))]


class FrameBlock:
    """One block; its parts are read and decoded when they are asked for.

    Raises DecodeError for bytes that ``encode_block`` did not make.
    """

    def __init__(
        self,
        lengths: tuple[int, ...],
        changed: tuple[int, ...],
        parts: BlockParts,
        decoded: DecodedParts,
    ) -> None:
        if len(lengths) != len(PARTS):
            raise _damaged(f"{len(lengths)} lengths")
        self.lengths = lengths
        self._changed = changed
        self._parts = parts
        self._decoded = decoded

    def items(self, name: str) -> list[Any]:
        """The items of one series. Raises DecodeError for bytes that hold none."""
        found = self._decoded.get((self, name))
        if found is None:
            found = self._unpacked(name, PARTS[name].decode)
            self._decoded.add((self, name), found)
        return found

    def numbered(self, name: str, number: int) -> list[Any]:
        """The items of one series whose ``number`` it is. Raises as ``items``."""
        make = PARTS[name].numbered
        if make is None:
            return with_number(self.items(name), number)
        if not self._changed or not self._changed[0] <= number <= self._changed[1]:
            return []  # nearly always
        return self._unpacked(name, lambda data: make(data, number))

    def _unpacked(self, name: str, decode: Callable[[bytes], list[Any]]) -> list[Any]:
        try:
            packed = self._parts.get(name)
            return [] if packed is None else decode(decompress(packed))
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError, ZlibError) as error:
            self._decoded.damaged = True
            raise _damaged(error) from error
        except DecodeError:
            self._decoded.damaged = True
            raise


class LazySeries(Generic[T]):
    """The items of one series in many blocks, and those that came since; blocks decode lazily.

    ``ends`` are the lengths of the series at the end of each block, so a place is found in the
    blocks by bisection and only that block is decoded.
    """

    def __init__(
        self, name: str, blocks: Sequence[FrameBlock], ends: Sequence[int], stored: int
    ) -> None:
        """The first ``stored`` items are in the blocks, which may be more by then."""
        self._name = name
        self._blocks = blocks
        self._ends = ends
        self._stored = stored
        self._fresh: list[T] = []

    def first(self, count: int, /) -> LazySeries[T]:
        """A sequence of its own with the first ``count`` items; no block is decoded for it."""
        found: LazySeries[T] = LazySeries(
            self._name, self._blocks, self._ends, min(self._stored, count)
        )
        found._fresh = self._fresh[: max(0, count - self._stored)]
        return found

    def append(self, item: T, /) -> None:
        """Add an item at the end."""
        self._fresh.append(item)

    def extend(self, items: Iterable[T], /) -> None:
        """Add items at the end."""
        self._fresh.extend(items)

    def numbered(self, number: int, count: int, /) -> list[T]:
        """Those of the first ``count`` items whose ``number`` it is; no others are made."""
        found: list[T] = []
        stored = min(count, self._stored)
        whole = bisect_right(self._ends, stored)
        for block in self._blocks[:whole]:
            found += block.numbered(self._name, number)
        rest = self._range(self._ends[whole - 1] if whole else 0, stored)
        return found + with_number([*rest, *self._fresh[: count - stored]], number)

    def __len__(self) -> int:
        return self._stored + len(self._fresh)

    def __iter__(self) -> Iterator[T]:
        return chain(self._range(0, self._stored), self._fresh)

    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[T]: ...
    def __getitem__(self, index: int | slice, /) -> T | list[T]:
        if not isinstance(index, slice):
            return self._at(index if index >= 0 else index + len(self))
        start, stop, step = index.indices(len(self))
        if step != 1:
            return [self._at(place) for place in range(start, stop, step)]
        fresh = self._fresh[max(0, start - self._stored) : max(0, stop - self._stored)]
        return [*self._range(start, min(stop, self._stored)), *fresh]

    def _range(self, start: int, stop: int) -> Iterator[T]:
        """The stored items from ``start`` to before ``stop``."""
        block = bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[block - 1] if block else 0
            last = min(stop, self._ends[block])
            yield from self._blocks[block].items(self._name)[start - first : last - first]
            start = last
            block += 1

    def _at(self, place: int) -> T:
        if place >= self._stored:
            return self._fresh[place - self._stored]
        block = bisect_right(self._ends, place)
        items: list[T] = self._blocks[block].items(self._name)
        return items[place - (self._ends[block - 1] if block else 0)]
