"""What took messages out of views, by message: at any moment of a session, without a fold."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable
from typing import Final

from eventctx.log.plan import TAKEN_BACK
from eventctx.projections.explain.changes import Change
from eventctx.queries.lost.answers import LeftBy

_LEFT_BY: Final[dict[str, LeftBy]] = {
    **dict.fromkeys(("summarised", "dropped", "merged"), "compaction"),
    "set": "set",
    "cleared": "clear",
    "replaced": "replaced",
    "erased": "erased",
}
_KINDS: Final[tuple[LeftBy, ...]] = (
    *("compaction", "set", "clear", "replaced", "erased"),
    "taken_back",
)


class LeavingCauses:
    """The causes of all changes that took messages out, in their order.

    A moment is a number of changes (``made``): those of a session that had been made by then. The
    last cause counts; an erasure only where there is no other one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._places = array("q")
        self._positions = array("q")
        self._kinds = bytearray()
        self._numbers = array("q")
        self._left: dict[int, array[int]] = {}
        self._erased: dict[int, int] = {}
        self._now: dict[int, LeftBy] = {}
        self._ends = array("q")
        self._totals: list[dict[LeftBy, int]] = []
        self._counted: Counter[LeftBy] = Counter()

    def read(self, changes: Iterable[Change]) -> None:
        """Take in the changes that came; records are never cut in two."""
        for number, what, cause, reason, _ in changes:
            by = "taken_back" if reason == TAKEN_BACK else _LEFT_BY.get(what)
            if by is not None:
                self._add(number, by, cause.position)
            self.count += 1

    def _add(self, number: int, by: LeftBy, position: int) -> None:
        if self._positions and self._positions[-1] != position:
            self._ends.append(self._places[-1] + 1)
            self._totals.append(dict(self._counted))
        place = len(self._places)
        self._places.append(self.count)
        self._positions.append(position)
        self._kinds.append(_KINDS.index(by))
        self._numbers.append(number)
        if by == "erased":
            self._erased.setdefault(number, place)
            if number in self._now:
                return
        else:
            self._left.setdefault(number, array("q")).append(place)
        before = self._now.get(number)
        if before is not None:
            self._counted[before] -= 1
        self._counted[by] += 1
        self._now[number] = by

    def first(self, number: int) -> int | None:
        """The position at which a message first left; None if it never did by a change."""
        places = [*self._left.get(number, ())[:1]]
        if number in self._erased:
            places.append(self._erased[number])
        return self._positions[min(places)] if places else None

    def is_erased(self, number: int, made: int) -> bool:
        """Whether a message had been erased."""
        place = self._erased.get(number)
        return place is not None and self._places[place] < made

    def at(self, number: int, made: int) -> tuple[LeftBy, int] | None:
        """What took a message out, and at which position; None if nothing did."""
        place = self._place(number, made)
        return None if place is None else (_KINDS[self._kinds[place]], self._positions[place])

    def totals(self, made: int) -> dict[LeftBy, int]:
        """How many messages have a cause, by the cause."""
        at = bisect_right(self._ends, made)
        if self._places and made > self._places[-1]:
            return dict(self._counted)
        return self._totals[at - 1] if at else {}

    def still_holds(self, position: int, by: LeftBy, made: int, shown: Container[int]) -> bool:
        """Whether a record of this kind is the cause of a message that is not ``shown``."""
        at = bisect_left(self._positions, position)
        if at == len(self._positions) or _KINDS[self._kinds[at]] != by:
            return False
        while at < len(self._positions) and self._positions[at] == position:
            number = self._numbers[at]
            if number not in shown and self._place(number, made) == at:
                return True
            at += 1
        return False

    def _place(self, number: int, made: int) -> int | None:
        places = self._left.get(number)
        if places is not None:
            for place in reversed(places):
                if self._places[place] < made:
                    return place
        erased = self._erased.get(number)
        return erased if erased is not None and self._places[erased] < made else None
