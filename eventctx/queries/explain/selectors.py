"""The selection of a request, and the state of the log at each selected one, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import check_number, shown
from eventctx.log.codec import decode_known
from eventctx.log.events import RequestPrepared
from eventctx.log.naming import position_name
from eventctx.log.record import Record
from eventctx.log.store import EventStore
from eventctx.projections import figures, numbering
from eventctx.projections.explain import changes
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.figures import Figures
from eventctx.projections.view import planned


class RequestSelector(NamedTuple):
    """A request: the last one of a turn or of one of its iterations, or the one at a position.

    With neither it is the view as it stands now.
    """

    turn: int | None = None
    iteration: int | None = None
    position: int | None = None

    @classmethod
    def of(cls, given: object, by: str = "turn") -> RequestSelector:
        """The selector for a turn, a pair of turn and iteration, or a position.

        Raises InvalidSetting for any other value.
        """
        if by not in ("turn", "position"):
            raise InvalidSetting(f"by: expected 'turn' or 'position', found {shown(by)}")
        if by == "position":
            return cls(position=_int(given, "position"))
        if isinstance(given, tuple) and len(given) == 2:
            return cls(_int(given[0], "turn"), _int(given[1], "iteration"))
        return cls(_int(given, "turn"))


NOW = RequestSelector()
"""The view as it stands now."""


class Seen(NamedTuple):
    """A state, and the request whose view it holds; None for the view as it stands now.

    ``figures`` are those of the whole session.
    """

    state: ChangesState
    figures: Figures
    record: Record | None = None
    prepared: RequestPrepared | None = None
    turn: int | None = None


async def states_at(
    store: EventStore, stream: str, selectors: Sequence[RequestSelector]
) -> tuple[list[Seen], ChangesState]:
    """The state at each selected request, and the state at the end of the log.

    Raises StreamNotFound, and InvalidSetting for a request that does not exist.
    """
    for selector in selectors:
        _check(selector)
    found: list[_Found | None] = [None] * len(selectors)
    wanted = {selector.position for selector in selectors}
    types: dict[int, str] = {}
    state, sizes = changes.initial(), figures.initial()
    async for record in store.read(stream, bodies=False):
        if record.position in wanted:
            types[record.position] = record.type
        if record.type == "context:request_prepared":
            turn = numbering.turn_number(state.time, record.turn_id)
            for place, selector in enumerate(selectors):
                if _is_meant(selector, record, turn):
                    found[place] = _seen(state, record, turn)
        state = changes.evolve(state, record)
        sizes = figures.evolve(sizes, record)
    known = figures.read(sizes)
    seen: list[Seen] = []
    for selector, one in zip(selectors, found, strict=True):
        if selector != NOW and one is None:
            raise InvalidSetting(_no_request(stream, selector, state.time, types))
        seen.append(Seen(state, known) if one is None else Seen(one[0], known, *one[1:]))
    return seen, state


def _is_meant(selector: RequestSelector, record: Record, turn: int | None) -> bool:
    if selector.position is not None:
        return record.position == selector.position
    return (
        selector.turn is not None
        and selector.turn == turn
        and selector.iteration in (None, record.iteration)
    )


_Found = tuple[ChangesState, Record, RequestPrepared, int | None]


def _seen(state: ChangesState, record: Record, turn: int | None) -> _Found:
    event: Any = decode_known(record)
    view = planned.with_insertions(state.view, event.insertions, record)
    return state._replace(view=view), record, event, turn


def _int(value: object, name: str) -> int:
    check_number(name, value)
    return cast(int, value)


def _check(selector: RequestSelector) -> None:
    for name, value in selector._asdict().items():
        if value is not None:
            _int(value, name)
    if selector.turn is not None and selector.position is not None:
        raise InvalidSetting("expected at most one of turn and position, found both")
    if selector.iteration is not None and selector.turn is None:
        raise InvalidSetting("iteration: counts within a turn; expected turn with it, found none")


def _no_request(
    stream: str, selector: RequestSelector, time: numbering.Numbering, types: dict[int, str]
) -> str:
    if selector.position is not None:
        found = types.get(selector.position, "nothing")
        return (
            f"{position_name(selector.position)} of session {stream!r}: expected a "
            f"context:request_prepared, found {found}; `eventctx audit {stream}` lists them"
        )
    turns = [turn.number for turn in numbering.turns(time)]
    if not turns:
        return f"session {stream!r} has no turns; its requests are listed by `eventctx audit`"
    if selector.turn not in turns:
        return f"session {stream!r} has turns {min(turns)} to {max(turns)}, found {selector.turn}"
    made = [one.iteration for one in time.requests if one.turn == selector.turn]
    if not made:
        return (
            f"turn {selector.turn} of session {stream!r} has no request; "
            "`eventctx audit` lists them"
        )
    counted = sorted({one for one in made if one is not None})
    named = f"iterations {counted[0]} to {counted[-1]}" if counted else "no iteration"
    return (
        f"turn {selector.turn} of session {stream!r} has no request in iteration "
        f"{selector.iteration}; it has requests in {named}"
    )
