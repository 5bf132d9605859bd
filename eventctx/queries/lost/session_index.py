"""The index of a session's messages, which all reports share: it grows with the log.

It holds texts of the session: sentences, paths, commands, and what the model wrote that may have
come from a result. It is in memory only, with the session's key frames, and goes with them: an
erasure, a deletion, or another log under the same name leaves nothing of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.log.plan import TAKEN_BACK
from eventctx.log.store import Address
from eventctx.messages.extracts import ExtractKind, extract, needles_in
from eventctx.messages.facts import Facts
from eventctx.messages.mentions import SummaryMentions
from eventctx.messages.recall_text import text_of
from eventctx.projections.explain.changes import Change, ChangesState, Origin
from eventctx.projections.presence import PROVIDER_EDITS
from eventctx.queries.lost.answers import LeftBy
from eventctx.queries.lost.gathering import GatheredItem, Gathering, unite_files
from eventctx.queries.lost.needles import HeldNeedles, Needles, marks_in

_LEFT_BY: Final[dict[str, LeftBy]] = {
    **dict.fromkeys(("summarised", "dropped", "merged"), "compaction"),
    "set": "set",
    "cleared": "clear",
    "replaced": "replaced",
    "erased": "erased",
}
_CAUSES: Final[tuple[LeftBy, ...]] = (
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
        self._bare: dict[int, int] = {}

    def read(self, changes: Iterable[Change]) -> None:
        """Take in the changes that came; records are never cut in two."""
        for number, what, cause, reason, _ in changes:
            step = cause.compaction if what == "thinking_left_out" else None
            if step is not None and step.strategy in PROVIDER_EDITS:
                self._bare.setdefault(number, self.count)
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
        self._kinds.append(_CAUSES.index(by))
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
        """The cause that took a message out, and its position; None if nothing did."""
        place = self._place(number, made)
        return None if place is None else (_CAUSES[self._kinds[place]], self._positions[place])

    def thinking_cleared(self, made: int) -> set[int]:
        """The messages whose thinking the provider had cleared."""
        return {number for number, place in self._bare.items() if place < made}

    def totals(self, made: int) -> dict[LeftBy, int]:
        """How many messages have a cause, by the cause."""
        at = bisect_right(self._ends, made)
        if self._places and made > self._places[-1]:
            return dict(self._counted)
        return self._totals[at - 1] if at else {}

    def still_holds(self, position: int, by: LeftBy, made: int, shown: Container[int]) -> bool:
        """Whether a record of this kind is the cause of a message that is not ``shown``."""
        at = bisect_left(self._positions, position)
        if at == len(self._positions) or _CAUSES[self._kinds[at]] != by:
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


_KINDS: Final[tuple[ExtractKind, ...]] = ("decision", "file", "command", "outcome")
_WRITERS: Final = ("person", "model", "tool", "other")
MOST_SHORTENED: Final = 4_096
MOST_SUMMARIES: Final = 16


class Overview(NamedTuple):
    """Conclusions from all messages, which hold until the next one comes.

    ``united`` has the items that are one file with another; ``items`` has those instead of their
    parts. ``files`` are names of files, lower case; only one file has a name that is ``alone``.
    ``used_again`` are the results of ``needles`` that may have left before the model used them.
    """

    items: Sequence[GatheredItem]
    united: Mapping[GatheredItem, GatheredItem]
    alone: frozenset[str]
    needles: HeldNeedles
    used_again: Sequence[int]


class SessionIndex:
    """The items, needles and changes of a session up to its first ``count`` messages."""

    def __init__(self) -> None:
        self.count = 0
        self.positions = array("q")
        self.gathering = Gathering()
        self.needles = Needles()
        self.causes = LeavingCauses()
        self.erased: list[int] = []
        self.demands: dict[int, tuple[str, ...]] = {}
        self.shortened: OrderedDict[Address, str] = OrderedDict()
        self.summaries: OrderedDict[tuple[Address, ...], SummaryMentions] = OrderedDict()
        self._writers = bytearray()
        self._turn_ids: list[str | None] = []
        self._turns: dict[str, int] = {}
        self._began = 0
        self._overview: Overview | None = None

    def __len__(self) -> int:
        return self.count

    def read(self, origins: Sequence[Origin], messages: Sequence[dict[str, Any] | None]) -> None:
        """Take in the messages that came; None for those without contents."""
        self._overview = None
        for origin, message in zip(origins, messages, strict=True):
            ref, number = origin.ref, self.count
            self.count += 1
            self.positions.append(ref.position)
            self._writers.append(_writer(ref.facts))
            self._turn_ids.append(origin.turn_id)
            if message is None:
                self.erased.append(number)
                continue
            facts, text = ref.facts, text_of(message)
            if facts.kind == "system":
                self.needles.system(needles_in(text))
                continue
            if facts.kind == "assistant":
                self.needles.used_by_model(number, ref.position, needles_in(text))
            else:
                self.needles.held(number, marks_in(text), is_result=bool(facts.answers))
            wanted = (*_KINDS, "instruction") if facts.human else _KINDS
            found = extract(message, wanted, number=number, kind=facts.kind)
            if found.demands:
                self.demands[number] = found.demands
            self.gathering.read(found)

    def follow(self, state: ChangesState) -> None:
        """Take in the changes and turns that came, up to ``state``."""
        if len(state.changes) > self.causes.count:
            self.causes.read(state.changes[self.causes.count :])
            self._overview = None
        for one in state.time.began[self._began :]:
            self._turns[one.turn_id] = one.number
        self._began = max(self._began, len(state.time.began))

    def overview(self) -> Overview:
        """The conclusions from all messages by now."""
        if self._overview is None:
            self._overview = self._made_overview()
        return self._overview

    def _made_overview(self) -> Overview:
        self.needles.look_through()
        given = self.gathering.items.values()
        one_file = unite_files(given)
        items = list(dict.fromkeys([one_file.get(item, item) for item in given]))
        names = Counter(file_name(item.text) for item in items if item.kind == "file")
        needles = self.needles.by_result(names.keys())
        again: list[int] = []
        for number, last in needles.last_used.items():
            left = self.causes.first(number)
            if left is None or left < last:
                again.append(number)
        alone = frozenset([name for name, count in names.items() if count == 1])
        return Overview(items, one_file, alone, needles, sorted(again))

    def turn(self, number: int) -> int | None:
        """The number of the turn in which a message was added."""
        turn_id = self._turn_ids[number]
        return None if turn_id is None else self._turns.get(turn_id)

    def writer(self, number: int) -> str:
        """The writer of a message: ``person``, ``model``, ``tool`` or ``other``."""
        return _WRITERS[self._writers[number]]

    def writers_before(self, known: int) -> dict[str, int]:
        """How many of the first messages each of them wrote."""
        return {one: self._writers.count(code, 0, known) for code, one in enumerate(_WRITERS)}

    def erased_before(self, known: int) -> int:
        """How many of the first messages have no contents."""
        return bisect_left(self.erased, known)


def file_name(path: str) -> str:
    """The last part of a path in lower case."""
    return path.rsplit("/", 1)[-1].casefold()


def _writer(facts: Facts) -> int:
    if facts.human:
        return 0
    return {"assistant": 1, "result": 2}.get(facts.kind, 3)
