"""What reports take from all messages of a session, whatever the view: it grows with the log.

It holds texts of the session: sentences, paths, commands, and what the model wrote that may have
come from a result. It lies in memory only, beside the session's key frames, and goes with them: an
erasure, a deletion, or another log under the same name leaves nothing of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.log.store import Address
from eventctx.messages.extracts import ExtractKind, extract, needles_in
from eventctx.messages.facts import Facts
from eventctx.messages.recall_text import text_of
from eventctx.projections.explain.changes import ChangesState, Origin
from eventctx.queries.lost.causes import LeavingCauses
from eventctx.queries.lost.gathering import GatheredItem, Gathering, united
from eventctx.queries.lost.needles import HeldNeedles, Needles, marks_in
from eventctx.queries.lost.summary_mentions import SummaryMentions

_KINDS: Final[tuple[ExtractKind, ...]] = ("decision", "file", "command", "outcome")
_WRITERS: Final = ("person", "model", "tool", "other")
MOST_SHORTENED: Final = 4_096
MOST_SUMMARIES: Final = 16


class Overview(NamedTuple):
    """What follows from all messages: it holds until the next one comes.

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
            self.gathering.read(extract(message, wanted, number=number, kind=facts.kind))

    def follow(self, state: ChangesState) -> None:
        """Take in the changes and turns that came, up to ``state``."""
        if len(state.changes) > self.causes.count:
            self.causes.read(state.changes[self.causes.count :])
            self._overview = None
        for one in state.time.began[self._began :]:
            self._turns[one.turn_id] = one.number
        self._began = max(self._began, len(state.time.began))

    def overview(self) -> Overview:
        """What follows from all messages by now."""
        if self._overview is None:
            self._overview = self._made_overview()
        return self._overview

    def _made_overview(self) -> Overview:
        self.needles.look_through()
        given = self.gathering.items.values()
        one_file = united(given)
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
        """Who wrote a message: ``person``, ``model``, ``tool`` or ``other``."""
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
