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
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.figures import Figures
from eventctx.projections.numbering import Numbering
from eventctx.projections.view import planned
from eventctx.queries.timelines.key_frames import record_at, timeline_at


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
    now = await timeline_at(store, stream)
    known = figures.read(now.audit.sizes)
    seen: list[Seen] = []
    for selector in selectors:
        if selector == NOW:
            seen.append(Seen(now.changes, known))
            continue
        record = await _request(store, stream, selector, now.changes.time)
        event: Any = decode_known(record)
        # A request that leaves out thinking is itself a change, which its own view has.
        until = record.position if event.unbound else record.position - 1
        state = (await timeline_at(store, stream, until)).changes
        turn = numbering.turn_number(state.time, record.turn_id)
        state = state._replace(view=planned.with_insertions(state.view, event.insertions, record))
        seen.append(Seen(state, known, record, event, turn))
    return seen, now.changes


async def _request(
    store: EventStore, stream: str, selector: RequestSelector, time: Numbering
) -> Record:
    """The record of a selected request. Raises InvalidSetting where there is none."""
    position = selector.position
    if position is None:
        assert selector.turn is not None  # noqa: S101 - tells the type checker
        made = numbering.request(time, selector.turn, selector.iteration)
        position = None if made is None else made.position
    record = None if position is None else await record_at(store, stream, position)
    if record is None or record.type != "context:request_prepared":
        found = "nothing" if record is None else record.type
        raise InvalidSetting(_no_request(stream, selector, time, found))
    return record


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


def _no_request(stream: str, selector: RequestSelector, time: Numbering, found: str) -> str:
    if selector.position is not None:
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
