"""The messages that compactions took out of the view, for a program that undoes one of them.

The messages return as they are, under their numbers. The text that an earlier compaction had put in
returns as a body of the plan that undoes the later one: a plan reads no text of another's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from eventctx.importers.recording.track import Content
from eventctx.importers.source.spill_file import SpillFile
from eventctx.log.events import Located
from eventctx.log.plan import Insertion
from eventctx.messages.facts import encode_facts
from eventctx.projections.view.refs import MessageRef


class PutIn(msgspec.Struct, frozen=True):
    """Insertions of a plan and the bodies that they name."""

    insertions: tuple[Insertion, ...] = ()
    contents: tuple[Content, ...] = ()


class _Step(msgspec.Struct, frozen=True):
    left: list[Located]
    put_in: PutIn


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Step).decode


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
        left = [_located(ref) for ref in before if ref.number not in after]
        self._places[number] = self._spill.put(_encode(_Step(left, put_in)))
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
        return _decode(self._spill.get(self._places[number]))

    def close(self) -> None:
        """Give up what was set aside."""
        self._spill.close()


def put_in(insertions: Sequence[Insertion], contents: Sequence[Content]) -> PutIn:
    """The insertions of a plan whose text it carries itself."""
    return PutIn(tuple([one for one in insertions if one.at is None]), tuple(contents))


def _located(ref: MessageRef) -> Located:
    return Located(ref.number, ref.position, ref.index, ref.digest, encode_facts(ref.facts))
