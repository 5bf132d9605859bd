"""A session as the screen needs it: its messages, its requests and their views, without texts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from eventctx.log.naming import request_name
from eventctx.log.store import Address
from eventctx.projections.timeline.views import ids_of

Standing = Literal["whole", "changed", "out", "later"]
"""How a message stands in a request: as it was added, as another text, not at all, not yet."""

_VIEWS_HELD: Final = 8
"""Requests whose views are held; each is a list of numbers as long as the view."""


class ReplayedRequest(NamedTuple):
    """One request. ``last`` is the last message added before it, -1 for none.

    ``known`` is how the request is known; ``budget`` is None where the log has none.
    """

    position: int
    name: str
    turn: int
    time: int
    last: int
    total: int
    estimated: bool
    budget: int | None
    known: str


class SentRow(NamedTuple):
    """A row of what was sent: the entry ``id``, or a gap where ``first`` to ``last`` are left out.

    An entry's ``id`` is the number of a message that is whole, or -1 - its place among the extras.
    ``number`` is the message of an entry; -1 where the entry is of none.
    """

    id: int | None
    number: int
    first: int = -1
    last: int = -1


class RequestRows(NamedTuple):
    """A request's rows, and the entry of each message in it."""

    rows: tuple[SentRow, ...]
    entries: dict[int, int]


class ReplayedSession:
    """The columns of a timeline document (``docs/reference/inspect.md``), read for the screen."""

    def __init__(self, document: Mapping[str, Any], *, title: str = "", known: str = "") -> None:
        self.name: str = document["session"]
        self.title = title
        self.known = known
        """How the session's requests are known, in a sentence; empty for ours."""
        self._columns: Mapping[str, Any] = document["messages"]
        self._kinds: tuple[str, ...] = document["legends"]["kinds"]
        self.extras: list[dict[str, Any]] = document["extras"]
        self.messages = len(self._columns["kind"])
        columns = document["requests"]
        self._keep, self._add = columns["keep"], columns["add"]
        self.requests = _requests(columns, document["legends"]["known"])
        self._positions = [one.position for one in self.requests]
        self.compactions = [one["position"] for one in document["compactions"] if one["number"]]
        """The positions of the compactions that changed the view."""
        self.view = lru_cache(_VIEWS_HELD)(self._view)

    def kind(self, number: int) -> str:
        """Who speaks in a message: one of ``facts.Kind``."""
        place: int = self._columns["kind"][number]
        return self._kinds[place]

    def tokens(self, number: int) -> int:
        """A message's estimated tokens."""
        found: int = self._columns["tokens"][number]
        return found

    def turn(self, number: int) -> int:
        """The turn in which a message was added; -1 outside of turns."""
        found: int = self._columns["turn"][number]
        return found

    def last(self, request: int) -> int:
        """The last message before a request; without a request the last of all."""
        return self.messages - 1 if request < 0 else self.requests[request].last

    def address(self, entry: int) -> Address | None:
        """Where the text of an entry is stored; None for one that has no body of its own."""
        if entry >= 0:
            return Address(self._columns["position"][entry], self._columns["index"][entry])
        extra = self.extras[-1 - entry]
        position, number = extra.get("position"), extra.get("number")
        if position is not None:
            return Address(position, extra["index"])
        if number is not None and extra["kind"] in ("stripped", "partial"):
            return self.address(number)
        return None

    def standing(self, request: int, number: int) -> Standing:
        """How a message stands in a request. Without requests every message is whole."""
        if request < 0:
            return "whole"
        if number > self.requests[request].last:
            return "later"
        entry = self.view(request).entries.get(number)
        return "out" if entry is None else "whole" if entry >= 0 else "changed"

    def is_new(self, request: int, number: int) -> bool:
        """Whether a message came into the view with this request."""
        if request < 0 or number not in self.view(request).entries:
            return False
        return request == 0 or number not in self.view(request - 1).entries

    def has_left(self, request: int, number: int) -> bool:
        """Whether the request before this one still held the message."""
        if request <= 0 or self.standing(request, number) != "out":
            return False
        return number in self.view(request - 1).entries

    def left(self, request: int) -> list[int]:
        """The messages that the request before held, and this one does not."""
        if request <= 0:
            return []
        now = self.view(request).entries
        return sorted([one for one in self.view(request - 1).entries if one not in now])

    def came(self, request: int) -> int:
        """How many messages are in this request and were not in the one before."""
        before = self.view(request - 1).entries if request > 0 else {}
        return sum([one not in before for one in self.view(request).entries])

    def at_position(self, position: int) -> int:
        """The last request at or before a position; the first where none is."""
        return max(0, bisect_right(self._positions, position) - 1)

    def compactions_before(self, request: int) -> int:
        """How many compactions changed the view up to a request."""
        return bisect_left(self.compactions, self.requests[request].position)

    def after_compactions(self) -> list[int]:
        """The first request behind each compaction, without those behind which none came."""
        found = {bisect_left(self._positions, one) for one in self.compactions}
        return sorted(found - {len(self.requests)})

    def _ids(self, request: int) -> list[int]:
        """The entry ids of a view. It goes back as far as its oldest entries stayed in view."""
        parts: list[list[int]] = []
        need = -1
        while request >= 0 and need != 0:
            keep, ids = self._keep[request], ids_of(self._add[request])
            parts.append(ids if need < 0 else ids[: max(0, need - keep)])
            need = keep if need < 0 else min(need, keep)
            request -= 1
        return [one for part in reversed(parts) for one in part]

    def _view(self, request: int) -> RequestRows:
        rows: list[SentRow] = []
        entries: dict[int, int] = {}
        expected = 0
        for entry in self._ids(request):
            number = entry if entry >= 0 else self._number_of(entry)
            if number >= 0:
                if number > expected:
                    rows.append(SentRow(None, expected, expected, number - 1))
                expected = max(expected, number + 1)
                entries[number] = entry
            rows.append(SentRow(entry, number))
        last = self.requests[request].last
        if expected <= last:
            rows.append(SentRow(None, expected, expected, last))
        return RequestRows(tuple(rows), entries)

    def _number_of(self, entry: int) -> int:
        """The message that an extra shows in another form; -1 where it is of none."""
        extra = self.extras[-1 - entry]
        number: int | None = extra.get("number")
        return -1 if number is None or extra["kind"] == "synthetic" else number


def _requests(columns: Mapping[str, Any], known: tuple[str, ...]) -> tuple[ReplayedRequest, ...]:
    found = []
    for place, position in enumerate(columns["position"]):
        turn, iteration = columns["turn"][place], columns["iteration"][place]
        budget = columns["budget"][place]
        name = request_name(
            None if turn < 0 else turn, None if iteration < 0 else iteration, position
        )
        found.append(
            ReplayedRequest(
                position,
                name,
                turn,
                columns["time"][place],
                columns["last"][place],
                columns["total"][place],
                bool(columns["estimated"][place]),
                None if budget < 0 else budget,
                known[columns["known"][place]],
            )
        )
    return tuple(found)
