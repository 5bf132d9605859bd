"""Turns and requests of a session, by number; ``--turn`` and ``--iteration`` refer to these."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.view.series import Series


class TimelineTurn(NamedTuple):
    """Turn ``number`` from position ``first`` to ``last``; ``time`` is its start in UTC ns."""

    number: int
    turn_id: str
    first: int
    last: int
    time: int


class TurnStart(NamedTuple):
    """The beginning of a turn: its number, id, first position, and start in UTC nanoseconds."""

    number: int
    turn_id: str
    first: int
    time: int


class TimelineRequest(NamedTuple):
    """A prepared request: its position, and its turn and iteration.

    ``turn`` is None outside a turn; ``iteration`` is as recorded, None outside an iteration.
    """

    position: int
    turn: int | None
    iteration: int | None


class Numbering(msgspec.Struct, frozen=True, gc=False):
    """All turns and requests so far.

    ``ends`` are the ids of completed turns, their positions, and whether an end is presumed.
    """

    position: int
    began: Series[TurnStart]
    ends: Series[tuple[str, int, bool]]
    requests: Series[TimelineRequest]


def initial() -> Numbering:
    """The numbering of an empty stream."""
    return Numbering(-1, Series(), Series(), Series())


_NUMBERED: Final = frozenset(("prompt:submit", "prompt:complete", "context:request_prepared"))


def evolve(state: Numbering, record: Record) -> Numbering:
    """The numbering after ``record``."""
    if record.type not in _NUMBERED:
        return replace(state, position=record.position)  # nearly all
    began, ends, requests = state.began, state.ends, state.requests
    if record.type == "prompt:submit" and record.turn_id is not None:
        event: Any = decode_known(record)
        began = began.append(TurnStart(event.number, record.turn_id, record.position, record.time))
    elif record.type == "prompt:complete" and record.turn_id is not None:
        presumed = getattr(read(record), "status", None) == "lost"
        ends = ends.append((record.turn_id, record.position, presumed))
    elif record.type == "context:request_prepared":
        number = turn_number(state, record.turn_id)
        requests = requests.append(TimelineRequest(record.position, number, record.iteration))
    return Numbering(record.position, began, ends, requests)


def turn_number(state: Numbering, turn_id: str | None) -> int | None:
    """The number of the turn with this id; None outside a turn."""
    if turn_id is None:
        return None
    # Search from the end: it is nearly always the last turn; others only while turns overlap.
    for place in range(len(state.began) - 1, -1, -1):
        one = state.began[place]
        if one.turn_id == turn_id:
            return one.number
    return None


def turns(state: Numbering) -> list[TimelineTurn]:
    """All turns. One that never completed ends where the next begins, or with the log.

    One that was presumed lost while its process was alive ends where that process ended it.
    """
    ends = _ends(state)
    found: list[TimelineTurn] = []
    for place, one in enumerate(state.began):
        following = state.began[place + 1].first - 1 if place + 1 < len(state.began) else None
        # A turn id may be used again, so a turn ends at the first end of its id after its start.
        end = next((end for end in ends.get(one.turn_id, ()) if end >= one.first), None)
        last = end or (following if following is not None else state.position)
        found.append(TimelineTurn(one.number, one.turn_id, one.first, last, one.time))
    return found


def _ends(state: Numbering) -> dict[str, list[int]]:
    """Positions of the ends by turn id, without presumed ones that a real end corrected."""
    ends: dict[str, list[int]] = {}
    assumed: set[int] = set()
    for turn_id, position, presumed in state.ends:
        own = ends.setdefault(turn_id, [])
        if own and own[-1] in assumed and not _began_between(state, turn_id, own[-1], position):
            own.pop()
        own.append(position)
        if presumed:
            assumed.add(position)
    return ends


def _began_between(state: Numbering, turn_id: str, after: int, before: int) -> bool:
    return any(one.turn_id == turn_id and after < one.first < before for one in state.began)


def turn(state: Numbering, number: int) -> TimelineTurn | None:
    """Turn ``number``, the last one if a turn was resumed; None if there is none."""
    return next((turn for turn in reversed(turns(state)) if turn.number == number), None)


def first_of(state: Numbering, turn: int) -> int | None:
    """The position at which a turn began, for the first time if it was resumed; None: no such."""
    return next((one.first for one in state.began if one.number == turn), None)


def request(state: Numbering, turn: int, iteration: int | None = None) -> TimelineRequest | None:
    """The last request of a turn, or of one iteration of it; None if there is none."""
    found = None
    for candidate in _requests_of(state, turn):
        if iteration in (None, candidate.iteration):
            found = candidate
    return found


def _requests_of(state: Numbering, turn: int) -> Iterator[TimelineRequest]:
    """All requests of a turn. None of them lies before its beginning."""
    began = first_of(state, turn)
    if began is not None:
        behind = bisect_left(state.requests, began, key=attrgetter("position"))
        yield from (one for one in state.requests[behind:] if one.turn == turn)
