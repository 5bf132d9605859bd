"""Messages with a person's demands through a session: how each request's view shows them.

Views change in a few records only; between two of them a view grows at its end, and every message
that came since is whole. So one *phase* says for all requests between two changes how the messages
with demands are shown, and a request costs nothing. No text is read: which sentences a cut message
or a summary still holds is found by the query (``queries/instructions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from eventctx.log.codec import decode_known
from eventctx.log.events import InstructionWithdrawn, Known, known_as
from eventctx.log.plan import numbers_in
from eventctx.log.record import Record
from eventctx.messages.facts import Facts
from eventctx.projections import numbering
from eventctx.projections.numbering import Numbering
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series

RemovedBy = Literal["set", "clear", "erased"]
"""Events that take a message out of the transcript, and its demands with it."""


class Demanding(NamedTuple):
    """A message of a person that may hold demands, as it was added.

    ``request`` is the index of the first request after it, among all of the session.
    """

    ref: MessageRef
    turn: int | None
    request: int


class Phase(NamedTuple):
    """The requests from index ``first`` on, up to the next phase, and how they show messages.

    ``shown`` are the messages with demands that are in view, as far as they were known when it
    began; those from number ``known`` on came later and are whole. ``for_others`` are insertions,
    and messages that a host put in the place of others.
    """

    first: int
    known: int
    shown: Mapping[int, MessageRef]
    for_others: tuple[InsertionRef | MessageRef, ...]


class Removed(NamedTuple):
    """Message ``number`` left the transcript before request ``request``, by this record."""

    number: int
    request: int
    by: RemovedBy
    position: int


class Withdrawal(NamedTuple):
    """A demand was taken back before request ``request``, by the record at ``position``."""

    event: InstructionWithdrawn
    request: int
    position: int


class InstructionsState(NamedTuple):
    """The fold's state. ``changed``: the last phase ended, or none began yet.

    ``view`` has the messages and insertions of the request view, and not all of its measures.
    ``replacing`` are the positions of sets that took messages out.
    """

    view: ViewState
    time: Numbering
    known_as: Series[Known]
    demanding: Series[Demanding]
    phases: Series[Phase]
    removed: Series[Removed]
    withdrawn: Series[Withdrawal]
    changed: bool = True
    replacing: frozenset[int] = frozenset()


_CHANGES: Final = frozenset(
    (
        *("context:post_compact", "context:messages_set", "context:cleared"),
        *("context:restored", "context:erased"),
    )
)

_OF_CALLS: Final = frozenset(
    (
        *("provider:request", "provider:response", "provider:error", "usage:reported"),
        *("tool:pre", "tool:post", "tool:error", "plan:start", "plan:end"),
    )
)
"""Records that change no message or insertion of a view, whatever else they change in it."""


def initial() -> InstructionsState:
    """The demands of an empty stream."""
    return InstructionsState(
        request_view.initial(),
        numbering.initial(),
        Series(),
        Series(),
        Series(),
        Series(),
        Series(),
    )


def evolve(state: InstructionsState, record: Record) -> InstructionsState:
    """The demands after ``record``.

    Its view is folded only as far as messages and insertions come and go. Records of calls, which
    are most of a log, change a view's estimated size alone, and a request changes nothing in it.
    """
    kind = record.type
    if kind in _OF_CALLS:
        return state
    if kind == "context:request_prepared":
        return _add_request(state, record)
    before = state.view
    view = request_view.evolve(before, record)
    if kind == "context:message_added":
        # Written out, since this runs for every message and _replace costs 1 µs.
        state = InstructionsState(view, *state[1:])
        return _add_messages(state, (view.layout.refs[-1],), record)
    state = state._replace(view=view, time=numbering.evolve(state.time, record))
    if kind in _CHANGES:
        state = _remove_messages(state._replace(changed=True), before, record)
    elif kind == "context:instruction_withdrawn":
        event: Any = decode_known(record)
        known = Withdrawal(event, len(state.known_as), record.position)
        state = state._replace(withdrawn=state.withdrawn.append(known))
    return state


def now(state: InstructionsState) -> Phase:
    """How the present view shows the messages with demands."""
    return _phase(state, state.view)


def runs_of(
    state: InstructionsState, one: Demanding, until: int
) -> Iterator[tuple[Phase, int, int]]:
    """The phases that a message has seen, each with its first and last request.

    It begins with the first request after the message and ends before request ``until``.
    """
    phases = state.phases
    for place, phase in enumerate(phases):
        end = phases[place + 1].first if place + 1 < len(phases) else until
        first, last = max(phase.first, one.request), min(end, until) - 1
        if first <= last:
            yield phase, first, last


# -- steps ---------------------------------------------------------------------------------------


def _add_messages(
    state: InstructionsState, refs: Iterable[MessageRef], record: Record
) -> InstructionsState:
    """The state with the messages that ``record`` added."""
    asking = [ref for ref in refs if _may_ask(ref.facts)]
    if not asking:
        return state
    turn = numbering.turn_number(state.time, record.turn_id)
    request = len(state.known_as)
    new = [Demanding(ref, turn, request) for ref in asking]
    return state._replace(demanding=state.demanding.extend(new))


def _may_ask(facts: Facts) -> bool:
    """Whether a person demands something here, or may have: the text was erased."""
    return facts.may_demand or (facts.human and not facts.mark)


def _add_request(state: InstructionsState, record: Record) -> InstructionsState:
    event: Any = decode_known(record)
    own = bool(event.insertions)
    if state.changed or own:
        seen = planned.with_insertions(state.view, event.insertions, record)
        state = state._replace(phases=state.phases.append(_phase(state, seen)))
    return state._replace(
        time=numbering.evolve(state.time, record),
        known_as=state.known_as.append(known_as(event)),
        changed=own,  # its insertions are of this request alone
    )


def _phase(state: InstructionsState, view: ViewState) -> Phase:
    held = _held_numbers(state)
    refs = [one.ref for one in view.layout.entries() if one.kind == "message"]
    shown = {one.number: one for one in refs if isinstance(one, MessageRef) and one.number in held}
    insertions = [one for one in view.layout.insertions if one.kind != "system_prompt"]
    put = [one for one in refs if isinstance(one, MessageRef) and one.position in state.replacing]
    return Phase(len(state.known_as), view.next_number, shown, (*insertions, *put))


def _held_numbers(state: InstructionsState) -> set[int]:
    """The numbers of the messages with demands that are in the transcript."""
    held = {one.ref.number for one in state.demanding}
    return held.difference([one.number for one in state.removed])


def _remove_messages(
    state: InstructionsState, before: ViewState, record: Record
) -> InstructionsState:
    event: Any = decode_known(record)
    by: RemovedBy
    match record.type:
        case "context:messages_set":
            by, left = "set", numbers_in(event.order)
            hidden = numbers_in([(run.first, run.last) for run in before.gone])
            if not left.issuperset(hidden.union([ref.number for ref in before.layout.refs])):
                state = state._replace(replacing=state.replacing | {record.position})
            fresh = [ref for ref in state.view.layout.refs if ref.number >= before.next_number]
            state = _add_messages(state, sorted(fresh, key=lambda ref: ref.number), record)
        case "context:cleared":
            by, left = "clear", set()
        case "context:erased":
            by, left = "erased", _held_numbers(state).difference(event.numbers)
        case _:
            return state
    gone = sorted(_held_numbers(state).difference(left))
    request = len(state.known_as)
    removed = [Removed(number, request, by, record.position) for number in gone]
    return state._replace(removed=state.removed.extend(removed))
