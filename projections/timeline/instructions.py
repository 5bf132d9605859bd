"""Messages with a person's demands through a session: how each request's view shows them.

Views change in a few records only; between two of them a view grows at its end, and every message
that came since is whole. So one *phase* says for all requests between two changes which messages
are in view, and a request costs nothing. No text is read: which sentences a cut message or a
summary still holds is found by the query (``queries/instructions``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import decode_known
from eventctx.log.events import InstructionWithdrawn, Known, known_as
from eventctx.log.record import Record
from eventctx.log.wire import BodyAt
from eventctx.messages.facts import Facts
from eventctx.projections import numbering
from eventctx.projections.explain.changes import ChangesState, Origin, What
from eventctx.projections.timeline.views import runs_of
from eventctx.projections.view import planned
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.series import Series
from eventctx.projections.view.state import ViewState

RemovedBy = Literal["set", "clear", "erased"]
"""Events that take a message out of the transcript, and its demands with it."""


class Demanding(NamedTuple):
    """A message of a person that may hold demands, and the place of its body as it was added.

    ``request`` is the index of the first request after it, among all of the session.
    """

    number: int
    body: BodyAt
    turn: int | None
    request: int


class OtherText(NamedTuple):
    """A text that may hold demands of other messages, and the place of its body.

    ``kind`` is that of an insertion; None for message ``number``, which a host put in the place of
    others.
    """

    body: BodyAt
    kind: str | None = None
    number: int = -1


class Phase(NamedTuple):
    """The requests from index ``first`` on, up to the next phase, and how they show messages.

    ``whole`` are the messages in view, runs of a first and a last number, as far as they were known
    when it began; those from number ``known`` on came later and are whole, too. ``cut`` are the
    shorter texts of a person's messages, by number. ``others`` stand for others.
    """

    first: int
    known: int
    whole: tuple[int, ...]
    cut: Mapping[int, BodyAt]
    others: tuple[OtherText, ...]

    def has_whole(self, number: int) -> bool:
        """Whether message ``number`` is in view as it was added."""
        if number >= self.known:
            return True
        place = bisect_right(self.whole, number)
        return place % 2 == 1 or (place > 0 and self.whole[place - 1] == number)


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


class InstructionsState(msgspec.Struct, frozen=True, gc=False):
    """The part of a timeline that demands need besides its changes.

    ``removed`` may name a message twice; the first time counts. ``replacing`` are the positions of
    sets that took messages out. ``known`` counts requests by how each is known. ``changed``: the
    last phase ended, or none began yet.
    """

    demanding: Series[Demanding]
    phases: Series[Phase]
    removed: Series[Removed]
    withdrawn: Series[Withdrawal]
    replacing: Series[int]
    known: Mapping[Known, int]
    changed: bool = True


_CHANGES: Final = frozenset(
    (
        *("context:post_compact", "context:messages_set", "context:cleared"),
        *("context:restored", "context:erased"),
    )
)
"""Records that change a view other than at its end."""

_REMOVALS: Final[dict[What, RemovedBy]] = {"set": "set", "cleared": "clear", "erased": "erased"}


def initial() -> InstructionsState:
    """The demands of an empty stream."""
    return InstructionsState(Series(), Series(), Series(), Series(), Series(), {})


def advance(
    state: InstructionsState, record: Record, before: ChangesState, after: ChangesState
) -> InstructionsState:
    """The demands after ``record``, whose changes the caller has folded already."""
    kind = record.type
    if kind == "context:message_added":
        if not _may_ask(after.origins[-1].ref.facts):
            return state  # nearly all
        return _add_messages(state, after.origins[-1:], after)
    if kind == "context:request_prepared":
        return _add_request(state, record, before)
    if kind in _CHANGES:
        return _change(replace(state, changed=True), record, before, after)
    if kind == "context:instruction_withdrawn":
        event: Any = decode_known(record)
        known = Withdrawal(event, len(after.time.requests), record.position)
        return replace(state, withdrawn=state.withdrawn.append(known))
    return state


def now(state: InstructionsState, changes: ChangesState) -> Phase:
    """How the view after all ``changes`` shows messages."""
    return _phase(state, changes.view, len(changes.time.requests))


def phases_of(
    phases: Sequence[Phase], one: Demanding, until: int
) -> Iterator[tuple[Phase, int, int]]:
    """The phases that a message has seen, each with its first and last request.

    It begins with the first request after the message and ends before request ``until``.
    """
    start = max(0, bisect_right(phases, one.request, key=lambda phase: phase.first) - 1)
    for place in range(start, len(phases)):
        phase = phases[place]
        if phase.first >= until:
            return
        end = phases[place + 1].first if place + 1 < len(phases) else until
        first, last = max(phase.first, one.request), min(end, until) - 1
        if first <= last:
            yield phase, first, last


# -- steps ---------------------------------------------------------------------------------------


def _may_ask(facts: Facts) -> bool:
    """Whether a person demands something here, or may have: the text was erased."""
    return facts.may_demand or (facts.human and not facts.mark)


def _add_messages(
    state: InstructionsState, origins: Iterable[Origin], after: ChangesState
) -> InstructionsState:
    """The state with the messages that a record added."""
    request = len(after.time.requests)
    new = [
        Demanding(
            one.ref.number,
            (one.ref.position, one.ref.index),
            numbering.turn_number(after.time, one.turn_id),
            request,
        )
        for one in origins
        if _may_ask(one.ref.facts)
    ]
    return replace(state, demanding=state.demanding.extend(new)) if new else state


def _add_request(
    state: InstructionsState, record: Record, before: ChangesState
) -> InstructionsState:
    event: Any = decode_known(record)
    phases = state.phases
    own = bool(event.insertions)
    if state.changed or own:
        seen = planned.with_insertions(before.view, event.insertions, record)
        phases = phases.append(_phase(state, seen, len(before.time.requests)))
    how = known_as(event)
    known = {**state.known, how: state.known.get(how, 0) + 1}
    # Its insertions are of this request alone.
    return replace(state, phases=phases, known=known, changed=own)


def _phase(state: InstructionsState, view: ViewState, first: int) -> Phase:
    shown = [one.ref for one in view.layout.entries() if one.kind == "message"]
    refs = [one for one in shown if isinstance(one, MessageRef)]
    whole = sorted([one.number for one in refs if not one.shortened])
    cut = {
        one.number: (one.position, one.index) for one in refs if one.shortened and one.facts.human
    }
    others = [
        OtherText((one.position, one.index), one.kind)
        for one in view.layout.insertions
        if one.kind != "system_prompt"
    ]
    others += [
        OtherText((one.position, one.index), None, one.number)
        for one in refs
        if _is_replacing(state, one.position)
    ]
    return Phase(first, view.next_number, runs_of(whole), cut, tuple(others))


def _is_replacing(state: InstructionsState, position: int) -> bool:
    place = bisect_left(state.replacing, position)
    return place < len(state.replacing) and state.replacing[place] == position


def _change(
    state: InstructionsState, record: Record, before: ChangesState, after: ChangesState
) -> InstructionsState:
    """The state after a record that took messages out of the transcript, or may have."""
    made = after.changes[len(before.changes) :]
    gone = {one.number: by for one in made if (by := _REMOVALS.get(one.what)) is not None}
    if gone:
        request = len(after.time.requests)
        removed = [
            Removed(one.number, request, gone[one.number], record.position)
            for one in _demanding_from(state, min(gone), max(gone))
            if one.number in gone
        ]
        state = replace(state, removed=state.removed.extend(removed))
    if record.type != "context:messages_set":
        return state
    if gone:
        state = replace(state, replacing=state.replacing.append(record.position))
    return _add_messages(state, after.origins[len(before.origins) :], after)


def _demanding_from(state: InstructionsState, first: int, last: int) -> list[Demanding]:
    """The messages with demands among those numbered ``first`` to ``last``."""
    start = bisect_left(state.demanding, first, key=lambda one: one.number)
    end = bisect_right(state.demanding, last, key=lambda one: one.number)
    return state.demanding[start:end]
