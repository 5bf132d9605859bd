"""A session as steps: the change of each record, and the size of the view after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from eventctx.cli.output.messages import role_of, snippet
from eventctx.cli.output.plain import one_line
from eventctx.cli.output.records import WITH_MESSAGE, details, more_rows
from eventctx.log.naming import iso_or, message_name, position_name, request_name
from eventctx.log.record import Record
from eventctx.messages import calibration
from eventctx.messages.encoding import decode_body
from eventctx.projections import numbering
from eventctx.projections.figures import CHANGES, Figures
from eventctx.projections.view import request_view
from eventctx.projections.view.state import ViewState

if TYPE_CHECKING:
    from eventctx.reader import Reader

SHOWN = frozenset(
    {
        "session:start",
        "session:fork",
        "session:end",
        "prompt:submit",
        "prompt:complete",
        "provider:error",
        "tool:error",
    }
)
"""Activity events that are steps; the others belong to a message or a request that is a step."""


_NO_STEPS: Final = ("context:pre_compact", "context:request_content")
"""A compaction is its end; a content of requests belongs to them."""

_JSON_NAMES: Final = {
    "name": "at",
    "transcript": "transcript_messages",
    "view": "view_messages",
    "tokens": "view_tokens",
}


class Step(msgspec.Struct, frozen=True, rename=_JSON_NAMES):
    """A record as a step. Sizes are of the state after it; an imported file may have no ``time``.

    ``tokens`` are those of a request with this view: the request's own figure where the step is
    one, of a compaction its size after it, else an estimate (``estimated``). ``name``, ``message``
    and ``request`` are names: ``@48``, ``#6`` of a message that is added, ``2.3`` of a request.
    """

    name: str
    position: int
    time: str | None
    type: str
    turn: int | None
    iteration: int | None
    transcript: int
    view: int
    tokens: int
    estimated: bool
    budget: int | None
    compactions: int
    text: str
    message: str | None
    request: str | None


async def steps_of(
    reader: Reader, session: str, stop: int | None, width: int, known: Figures
) -> list[Step]:
    """The steps up to position ``stop``; texts have at most ``width`` characters."""
    found: list[Step] = []
    view = request_view.initial()
    time: numbering.Numbering = numbering.initial()
    budget: int | None = None
    sizes = _Sizes(known)
    async for record in reader.records(session, 0, stop, bodies=True):
        view = request_view.evolve(view, record)
        time = numbering.evolve(time, record)
        tokens, estimated = sizes.after(record, view)
        if record.type.startswith("context:") and record.type not in _NO_STEPS:
            text = _text(record, width, known)
        elif record.type in SHOWN:
            text = details(record)
        else:
            continue
        if record.type == "context:request_prepared":
            budget = _budget(record)
        turn = numbering.turn_number(time, record.turn_id)
        added = record.type == "context:message_added"
        asks = record.type == "context:request_prepared"
        found.append(
            Step(
                position_name(record.position),
                record.position,
                iso_or(record.time, known.file.undated),
                record.type,
                turn,
                record.iteration,
                view.messages,
                view.layout.measure()[1],
                tokens,
                estimated,
                budget,
                view.compactions,
                text,
                message_name(view.next_number - 1) if added else None,
                request_name(turn, record.iteration, record.position) if asks else None,
            )
        )
    return found


class _Sizes:
    """The view's tokens after each record, and whether they are estimated.

    A log holds a provider's count after the answer, and a screen shows it with the request.
    What is added between the two is estimated on top of that count, so that the view does not seem
    to shrink and grow again.
    """

    def __init__(self, known: Figures) -> None:
        self._known = known
        self._above: int | None = None
        """The last request's own figure less the estimate of its view."""

    def after(self, record: Record, view: ViewState) -> tuple[int, bool]:
        estimate = calibration.scale(view.calibration).tokens(view.layout.tokens)
        request = self._known.requests.get(record.position)
        if request is not None:
            self._above = request.total - estimate
            return request.total, request.estimated
        compaction = self._known.compactions.get(record.position)
        if compaction is not None:
            self._above = None
            return compaction.after, compaction.after_estimated
        if record.type == "usage:reported" or record.type in CHANGES:
            self._above = None
        return max(0, estimate + (self._above or 0)), True


def _budget(record: Record) -> int | None:
    value: Any = msgspec.json.decode(record.payload).get("budget")
    return value if isinstance(value, int) else None


def _text(record: Record, width: int, known: Figures) -> str:
    if record.type not in WITH_MESSAGE or not record.bodies:
        return details(record, known)
    if record.bodies[0].data is None:
        return "[erased]"
    message = decode_body(record.bodies[0].data)
    if not isinstance(message, dict):  # the stored bytes were changed; `verify` tells
        return f"no message: {one_line(str(message), width)}"
    return f"{role_of(message)}: {snippet(message, width)}{more_rows(record)}"


def next_turn(steps: list[Step], at: int, direction: int) -> int:
    """The step where the next turn begins (``direction`` 1) or the present or last one did (-1)."""
    place = at + direction
    while 0 <= place < len(steps) and steps[place].type != "prompt:submit":
        place += direction
    return min(max(place, 0), len(steps) - 1)


def next_compaction(steps: list[Step], at: int) -> int:
    """The step of the next compaction; where there is none, ``at``."""
    for place in range(at + 1, len(steps)):
        if steps[place].type == "context:post_compact":
            return place
    return at


def at_position(steps: list[Step], position: int) -> int:
    """The last step at or before a position."""
    place = 0
    for number, step in enumerate(steps):
        if step.position <= position:
            place = number
    return place
