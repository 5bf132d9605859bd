"""The messages of a graph's state held against the transcript: what is new, and what is changed.

Those of a list that only grew are not looked at again: Python compares it with the list before by
its objects. In place a program changes the newest answer at most, as a person's edit of a call
does; so that, and what follows it, is looked into.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol

from eventctx.adapters.langgraph.index import ThreadIndex
from eventctx.adapters.langgraph.parts import SOURCE
from eventctx.adapters.langgraph.rows import Row, changed
from eventctx.adapters.langgraph.values import (
    TYPES,
    Boxer,
    Piece,
    Runs,
    add_run,
    first_of,
)
from eventctx.messages.overlap import match_in_order
from eventctx.session.host_state import Extension, HostPart

MOST_ROWS: Final = 32
"""Most messages at the end of a list that are looked into again."""


class HeldMessages(NamedTuple):
    """A state's messages as objects, with their numbers, as a list and as runs."""

    objects: list[BaseMessage]
    numbers: list[int]
    runs: Runs


class Alignment(NamedTuple):
    """How the transcript becomes a list of messages: by ``added`` ones, or by a set to ``order``.

    The first ``start`` messages are those that are held, ``tail`` is what follows them. ``pieces``
    are those of messages that were compared, by number.
    """

    start: int = 0
    tail: HeldMessages | None = None
    pieces: Mapping[int, Piece] = {}
    added: Sequence[Piece] = ()
    order: list[int | Piece] | None = None

    def numbered(self) -> dict[int, int]:
        """The numbers that new messages will have, by their objects."""
        return {id(piece.message): number for number, piece in self.pieces.items()}

    @property
    def rows(self) -> dict[int, Row]:
        """The rows of messages that were compared, by number."""
        return {number: piece.row for number, piece in self.pieces.items() if piece.row}

    def extension(self, parts: Sequence[HostPart]) -> Extension:
        """What is appended: the messages, and then ``parts``."""
        order = self.order
        rows = None if order is None else [x if isinstance(x, int) else x.row for x in order]
        return Extension(SOURCE, parts, [piece.row for piece in self.added], rows)


class Aligner:
    """Compares a state's messages with the transcript in ``index``; ``boxer`` makes pieces."""

    def __init__(self, index: ThreadIndex, serde: SerializerProtocol) -> None:
        self.boxer = Boxer(serde, self.known)
        self.held = HeldMessages([], [], [])
        self.drafted: dict[int, Piece] = {}
        self._index = index
        self._places: dict[int, int] = {}
        self._recent: OrderedDict[int, Row] = OrderedDict()

    # -- what is known ---------------------------------------------------------------------------

    def hold(self, tail: HeldMessages, start: int = 0) -> None:
        """Hold the objects of the transcript's messages from ``start`` on, to know them again."""
        held = self.held
        del held.objects[start:], held.numbers[start:]
        if start == 0:
            self._places.clear()
        self._places.update({id(one): at for at, one in enumerate(tail.objects, start)})
        # In place: to copy a long list takes longer than to compare it.
        held.objects.extend(tail.objects)
        held.numbers.extend(tail.numbers)
        self.held = held._replace(runs=tail.runs)

    def known(self, message: BaseMessage) -> Piece | None:
        held = self.held
        at = self._places.get(id(message))
        if at is None or at >= len(held.objects) or held.objects[at] is not message:
            made = self.drafted.get(id(message))
            same = made is not None and made.message is message and made.row["id"] == message.id
            return made if same and made is not None and not changed(message, made.row) else None
        index, number = self._index, held.numbers[at]
        if self._is_changed(number, message):
            return None
        rest_print = index.rest_prints.get(number, b"")
        return Piece(message, {}, index.said[number], None, rest_print, number)

    def _is_changed(self, number: int, message: BaseMessage) -> bool:
        row = self._recent.get(number)
        return row is not None and (row.get("id") != message.id or changed(message, row))

    def note_rows(self, rows: Mapping[int, Row]) -> None:
        """Note the rows of messages that were looked at or read, by number."""
        self._recent.update(rows)
        while len(self._recent) > 2 * MOST_ROWS:
            self._recent.popitem(last=False)

    def number(self, new: Mapping[int, int], piece: Piece) -> int | None:
        """The number of a message's event; None if it has none."""
        if piece.number is not None:
            return piece.number
        piece = self.renewed(piece)
        number = self._index.by_id.get(piece.message.id or "")
        if number is not None and self._index.said[number] == piece.said:
            return number
        return new.get(id(piece.message)) if piece.row["id"] == piece.message.id else None

    def renewed(self, piece: Piece) -> Piece:
        """The piece again, where its message has got an id since."""
        if piece.number is not None or piece.row.get("id") == piece.message.id:
            return piece
        return self.boxer.piece(piece.message)

    # -- messages --------------------------------------------------------------------------------

    def align(self, messages: object) -> Alignment:
        """Compare a state's list with the transcript; without a ``tail`` it is none of messages."""
        index, held = self._index, self.held
        if not isinstance(messages, list):
            return Alignment()
        start = self._unchanged(messages)
        if not all(isinstance(one, BaseMessage) and one.type in TYPES for one in messages[start:]):
            return Alignment()
        if start < len(held.objects) and held.numbers[:start] != index.order[:start]:
            return self._set_to(messages)
        later = index.order[start:]
        made = [self.boxer.piece(one) for one in messages[start:]]
        known = [
            later[at] if at < len(later) and index.said[later[at]] == piece.said
            else self.number({}, piece)
            for at, piece in enumerate(made)
        ]  # fmt: skip
        added = self._fits(made, known, later)
        if added is None:
            return self._set_to(messages)
        following = len(index.addresses)
        fresh = iter(range(following, following + len(added)))
        tail = [next(fresh) if number is None else number for number in known]
        runs = first_of(held.runs, start)
        for number in tail:
            add_run(runs, number)
        pieces = dict(zip(tail, made, strict=True))
        return Alignment(start, HeldMessages(messages[start:], tail, runs), pieces, added)

    def _fits(
        self, made: list[Piece], known: list[int | None], later: list[int]
    ) -> list[Piece] | None:
        """The messages that the transcript lacks, if it needs no more than these at its end.

        ``known`` are the numbers of those that it has; ``later`` those that it has in their place.
        """
        new = [piece for piece, number in zip(made, known, strict=True) if number is None]
        count = len(known) - len(new)
        there, late = later[:count], later[count:]
        # Those that the list lacks are ahead, by a task or a middleware, or were taken out. A run
        # may save a step after later ones were written, so a position would not tell.
        if late and (new or any(number <= self._last_saved() for number in late)):
            return None
        first = known.index(None) if new else len(known)
        last = max([at for at, number in enumerate(known) if number is not None], default=-1)
        if not all(isinstance(one.message, ToolMessage) for one in made[first : last + 1]):
            return None
        return new if _as_written(made, known) == there else None

    def _last_saved(self) -> int:
        """The highest number of a message in the newest checkpoint; -1 without one."""
        latest = self._index.latest("")
        runs = None if latest is None else self._index.whole(latest).runs
        return max([last for _, last in runs or ()], default=-1)

    def _unchanged(self, messages: list[BaseMessage]) -> int:
        """How many messages at the beginning are those before, by their objects."""
        held = self.held.objects
        count = len(held)
        # One comparison of equally long lists looks at no message that is the same object.
        held.extend(messages[count:])
        same = held == messages
        del held[count:]
        if not same:
            pairs = enumerate(zip(held, messages, strict=False))
            most = min(count, len(messages))
            count = next((at for at, (one, other) in pairs if one != other), most)
        for at in range(count - 1, max(-1, count - MOST_ROWS - 1), -1):
            if self._is_changed(self.held.numbers[at], messages[at]):
                count = at
            if isinstance(messages[at], AIMessage):
                break  # what comes before was answered
        return count

    def _set_to(self, messages: list[BaseMessage]) -> Alignment:
        """Set the transcript. Messages that stay keep their numbers, as far as these still rise."""
        index = self._index
        made = [self.boxer.piece(one) for one in messages]
        known = [self.number({}, one) for one in made]
        keys: list[int] = [-1 - at if number is None else number for at, number in enumerate(known)]
        order: list[int | Piece] = []
        numbers: list[int] = []
        pieces: dict[int, Piece] = {}
        following = len(index.addresses)
        for piece, place in zip(made, match_in_order(index.order, keys), strict=True):
            if place is not None:
                number = index.order[place]
                order.append(number)
                numbers.append(number)
                if piece.rest_print != index.rest_prints.get(number, b""):
                    pieces[number] = piece  # its row is there, by a middleware, and no rest yet
                continue
            # One that is known, but stands elsewhere, is a new message here.
            order.append(piece if piece.number is None else self.boxer.made(piece.message))
            numbers.append(following)
            pieces[following] = self.boxer.made(piece.message)
            following += 1
        runs: Runs = []
        for number in numbers:
            add_run(runs, number)
        return Alignment(0, HeldMessages(messages, numbers, runs), pieces, (), order)


def _as_written(made: Sequence[Piece], known: Sequence[int | None]) -> list[int]:
    """The known numbers in the order of the log, where results are in the order of their ends.

    LangGraph puts results of parallel tools in the order of their calls.
    """
    found: list[int] = []
    pairs = zip(made, known, strict=True)
    for are_results, some in groupby(pairs, lambda one: isinstance(one[0].message, ToolMessage)):
        numbers = [number for _, number in some if number is not None]
        found += sorted(numbers) if are_results else numbers
    return found
