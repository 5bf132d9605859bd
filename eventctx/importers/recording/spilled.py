"""Set aside on disk: older references of the view, and compactions that may be undone.

The recorder folds the view of a file's whole conversation. A session that was never compacted has a
reference and an entry for each of its messages in it, 700 bytes together, which is half the size of
a short message. Only the newest are needed to go on; the older ones are read at a compaction.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from eventctx.importers.recording.track import Content
from eventctx.importers.source.spill_file import SpillFile
from eventctx.log.events import Located
from eventctx.log.plan import Insertion
from eventctx.messages.facts import encode_facts
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import CallEnd, InsertionRef, MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series

T = TypeVar("T")

CHUNK: Final = 512
"""Items that are set aside together. As many of the newest always stay in memory, at least two: the
layout recognises the last row by its identity, also when the next one was added already."""


class _StoredEntry(msgspec.Struct, frozen=True, array_like=True):
    kind: Any
    message: MessageRef | None
    insertion: InsertionRef | None
    call_id: str
    omit: tuple[str, ...]
    end: CallEnd | None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_refs: Final = msgspec.msgpack.Decoder(list[MessageRef]).decode
_decode_entries: Final = msgspec.msgpack.Decoder(list[_StoredEntry]).decode


def _of_entries(entries: list[Entry]) -> bytes:
    return _encode(
        [
            _StoredEntry(
                one.kind,
                one.ref if isinstance(one.ref, MessageRef) else None,
                one.ref if isinstance(one.ref, InsertionRef) else None,
                one.call_id,
                one.omit,
                one.end,
            )
            for one in entries
        ]
    )


def _entries_of(data: bytes) -> list[Entry]:
    stored = _decode_entries(data)
    return [
        Entry(one.kind, one.message or one.insertion, one.call_id, one.omit, one.end)
        for one in stored
    ]


class SpilledSequence(Generic[T]):
    """A growing sequence whose older items are in a spill file, in chunks."""

    def __init__(
        self,
        spill: SpillFile,
        encode: Callable[[list[T]], bytes],
        decode: Callable[[bytes], list[T]],
        items: Iterable[T] = (),
    ) -> None:
        self._spill = spill
        self._encode = encode
        self._decode = decode
        self._places = array("Q")
        self._read: tuple[int, list[T]] = (-1, [])
        self._newest: list[T] = []
        self.extend(items)

    def append(self, item: T) -> None:
        """Add an item at the end."""
        self._newest.append(item)
        if len(self._newest) >= 2 * CHUNK:
            self._places.append(self._spill.put(self._encode(self._newest[:CHUNK])))
            del self._newest[:CHUNK]

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end."""
        for item in items:
            self.append(item)

    def first(self, count: int) -> list[T]:
        """The first ``count`` items, in memory."""
        return self[:count]

    def __len__(self) -> int:
        return len(self._places) * CHUNK + len(self._newest)

    def __iter__(self) -> Iterator[T]:
        for chunk in range(len(self._places)):
            yield from self._chunk(chunk)
        yield from self._newest

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        chunk, place = divmod(index, CHUNK)
        if chunk < len(self._places):
            return self._chunk(chunk)[place]
        return self._newest[index - len(self._places) * CHUNK]

    def _chunk(self, chunk: int) -> list[T]:
        if self._read[0] != chunk:
            self._read = (chunk, self._decode(self._spill.get(self._places[chunk])))
        return self._read[1]


class SpilledView:
    """Keeps the state of a request view small. ``close`` frees the disk space."""

    def __init__(self) -> None:
        self._spill = SpillFile()

    def spill(self, view: ViewState) -> ViewState:
        """An equal state, whose long parts are on disk; most often the very same one."""
        refs, sealed = view.layout.refs, view.layout.sealed
        if len(refs) < 2 * CHUNK or refs.is_backed:
            return view
        layout = replace(
            view.layout,
            refs=Series.backed_by(SpilledSequence(self._spill, _encode, _decode_refs, refs)),
            sealed=Series.backed_by(SpilledSequence(self._spill, _of_entries, _entries_of, sealed)),
        )
        return replace(view, layout=layout)

    def close(self) -> None:
        """Give up what was set aside; the state must not be read any more."""
        self._spill.close()


class PutIn(msgspec.Struct, frozen=True):
    """Insertions of a plan and the bodies that they name."""

    insertions: tuple[Insertion, ...] = ()
    contents: tuple[Content, ...] = ()


class _Step(msgspec.Struct, frozen=True):
    left: list[Located]
    put_in: PutIn


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Step).decode


class UndoneCompactions:
    """The compactions in force, by their number in the file, set aside on disk."""

    def __init__(self) -> None:
        self._spill = SpillFile()
        self._places: dict[int, int] = {}
        self._positions: dict[int, int] = {}

    def keep(
        self,
        number: int,
        position: int,
        before: Iterable[MessageRef],
        after: Collection[int],
        put_in: PutIn,
    ) -> None:
        """Keep a compaction: what was in view ``before`` it, and is not among ``after``."""
        left = [_locate(ref) for ref in before if ref.number not in after]
        self._places[number] = self._spill.put(_pack(_Step(left, put_in)))
        self._positions[number] = position

    def undo(self, numbers: Collection[int]) -> tuple[list[Located], set[int], PutIn]:
        """The messages that return, the positions of the plans that hold no longer, and the text
        of the newest one that still holds."""
        known = sorted(self._places.keys() & set(numbers))
        if not known:
            return [], set(), PutIn()
        steps = [self._read(number) for number in known]
        positions = {self._positions[number] for number in known}
        for number in known:
            del self._places[number]
        left = {one.number: one for step in steps for one in step.left}
        standing = self._read(max(self._places)).put_in if self._places else PutIn()
        return (
            [left[number] for number in sorted(left)],
            positions,
            standing,
        )

    def stands_at(self, position: int) -> None:
        """Note that the plan at ``position`` has put in the text of the newest one in force."""
        if self._places:
            self._positions[max(self._places)] = position

    def _read(self, number: int) -> _Step:
        return _unpack(self._spill.get(self._places[number]))

    def close(self) -> None:
        """Give up what was set aside."""
        self._spill.close()


def put_in(insertions: Sequence[Insertion], contents: Sequence[Content]) -> PutIn:
    """The insertions of a plan whose text it carries itself."""
    return PutIn(tuple([one for one in insertions if one.at is None]), tuple(contents))


def _locate(ref: MessageRef) -> Located:
    return Located(ref.number, ref.position, ref.index, ref.digest, encode_facts(ref.facts))
