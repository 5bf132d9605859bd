"""Steps of the fold: changes to the transcript and its pins, and spans that begin and end.

The steps of added messages, compactions and requests are in ``request_view``.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from eventctx.log import events
from eventctx.log.codec import decode_known
from eventctx.log.events import Located
from eventctx.log.plan import Insertion, find, without
from eventctx.log.record import Record
from eventctx.messages.facts import decode_facts
from eventctx.messages.tokens import Estimator
from eventctx.projections.view import layout as layouts
from eventctx.projections.view.planned import (
    insertion_refs,
    mark_replaced,
    reference,
    strip_thinking,
)
from eventctx.projections.view.refs import InsertionRef, MessageRef, end_in
from eventctx.projections.view.state import (
    ViewState,
    initial,
    tool_event,
    with_begun,
    with_break,
    without_ended,
)


def set_messages(state: ViewState, record: Record) -> ViewState:
    """The transcript is the one that was set; messages that stay keep their numbers."""
    event: Any = decode_known(record)
    known = {ref.number: ref for ref in state.layout.refs}
    fresh = 0
    refs: list[MessageRef] = []
    hidden = {"summarised": 0, "dropped": 0, "merged": 0}
    messages = 0
    for first, last in event.order:
        for number in range(first, last + 1):
            messages += 1
            if number in known:
                refs.append(known[number])
            elif number >= state.next_number:
                refs.append(reference(record, fresh, number, state.estimator))
                fresh += 1
            elif (run := find(state.gone, number)) is not None:
                hidden[run.disposition] += 1
    refs = strip_thinking(refs, event.unbound, state.estimator)
    return replace(
        state,
        next_number=state.next_number + fresh,
        messages=messages,
        layout=layouts.build(
            refs, _insertions_left(state, event.order), state.layout.ends.only_of(refs)
        ),
        breaks=with_break(state.breaks, "set"),
        hidden=(hidden["summarised"], hidden["dropped"], hidden["merged"]),
        pins=state.pins.intersection(ref.number for ref in refs),
        spoken=state.spoken.only_of(
            event.order, [ref for ref in refs if ref.number >= state.next_number]
        ),
    )


def _insertions_left(
    state: ViewState, order: tuple[tuple[int, int], ...]
) -> tuple[InsertionRef, ...]:
    """The insertions that stand for at least one message still in the transcript."""
    return tuple(
        one
        for one in state.layout.insertions
        if one.kind == "system_prompt"
        or any(
            first <= end and start <= last
            for start, end in one.stands_for or ((0, one.through),)
            for first, last in order
        )
    )


def clear(state: ViewState, record: Record) -> ViewState:
    """Nothing is visible but the system prompts; numbers and turns are counted on."""
    prompts = [one for one in state.layout.insertions if one.kind == "system_prompt"]
    return replace(
        initial(),
        next_number=state.next_number,
        layout=layouts.build((), prompts) if prompts else layouts.EMPTY,
        breaks=with_break(state.breaks, "clear"),
        compactions=state.compactions,
        turns=state.turns,
        calibration=state.calibration,
        mirror=state.mirror,
        spans=state.spans,
    )


def pin(state: ViewState, record: Record) -> ViewState:
    """No compaction takes these messages out."""
    event: Any = decode_known(record)
    return replace(state, pins=state.pins.union(event.numbers))


def unpin(state: ViewState, record: Record) -> ViewState:
    """Compactions may take these messages out again."""
    event: Any = decode_known(record)
    return replace(state, pins=state.pins.difference(event.numbers))


def restore(state: ViewState, record: Record) -> ViewState:
    """Messages that a compaction took out or shortened are back, whole."""
    event: Any = decode_known(record)
    summarised, dropped, merged = state.hidden
    back: dict[int, MessageRef] = {}
    whole = {ref.number for ref in state.layout.refs if not (ref.shortened or ref.replaced)}
    present = {ref.number for ref in state.layout.refs}.difference(whole)
    for located in event.messages:
        run = find(state.gone, located.number)
        if located.number in whole or (run is None and located.number not in present):
            continue
        if run is not None and located.number not in present:
            summarised -= run.disposition == "summarised"
            dropped -= run.disposition == "dropped"
            merged -= run.disposition == "merged"
        back[located.number] = _reference(located, state.estimator)
    gone = without(state.gone, sorted(back))
    # Whole messages take the place of their shortened forms, and of references that are not shown.
    refs = [back.pop(ref.number, ref) for ref in state.layout.refs]
    if event.before:
        before = {one.number: at for one, at in zip(event.messages, event.before, strict=True)}
        for number in [one.number for one in event.messages if one.number in back]:
            places = (i for i, ref in enumerate(refs) if ref.number == before[number])
            refs.insert(next(places, len(refs)), back[number])
    else:
        for number in sorted(back):
            place = next((i for i, ref in enumerate(refs) if ref.number > number), len(refs))
            refs.insert(place, back[number])
    refs = strip_thinking(refs, event.unbound, state.estimator)
    return replace(
        state,
        gone=tuple(gone),
        layout=layouts.build(refs, state.layout.insertions, state.layout.ends),
        breaks=with_break(state.breaks, "restore"),
        hidden=(summarised, dropped, merged),
    )


def withdraw_demand(state: ViewState, record: Record) -> ViewState:
    """A demand of a person holds no longer."""
    event: Any = decode_known(record)
    return replace(state, spoken=state.spoken.without_demand(event.number, event.demand))


def _reference(located: Located, estimator: Estimator) -> MessageRef:
    facts = decode_facts(located.facts)
    return MessageRef(
        located.number,
        located.position,
        located.index,
        located.digest,
        facts,
        estimator.tokens(facts),
    )


def set_prompts(state: ViewState, record: Record) -> ViewState:
    """The system prompts are these; they come before all messages."""
    event: Any = decode_known(record)
    rows = [Insertion("system_prompt", index) for index in range(len(record.bodies))]
    prompts = insertion_refs(rows, state, record)
    others = [one for one in state.layout.insertions if one.kind != "system_prompt"]
    refs = strip_thinking(state.layout.refs, event.unbound, state.estimator)
    refs = mark_replaced(refs, event.replaced)
    layout = layouts.build(refs, [*prompts, *others], state.layout.ends)
    layout = replace(layout, late=state.layout.late)
    # A system prompt set before the first request breaks no earlier view.
    sent = bool(state.calibration.requests)
    breaks = with_break(state.breaks, "insertion") if sent else state.breaks
    return replace(state, layout=layout, breaks=breaks)


def erase(state: ViewState, record: Record) -> ViewState:
    """Contents are gone; thinking that was bound to them is stripped from the other messages."""
    event: Any = decode_known(record)
    layout = state.layout
    if event.unbound:
        refs = strip_thinking(layout.refs, event.unbound, state.estimator)
        layout = layouts.rebuild(refs, layout)
    left = state.spoken.without_messages(event.numbers)
    breaks = with_break(state.breaks, "erase")
    return replace(state, layout=layout, breaks=breaks, spoken=left)


def start_session(state: ViewState, record: Record) -> ViewState:
    """An imported session mirrors its file."""
    event: Any = decode_known(record)
    return replace(state, mirror=None if event.imported_at is None else event.source or "a file")


def leave_file(state: ViewState, record: Record) -> ViewState:
    """The session takes no more records from a file."""
    # A fork reads through its parent's records; its own first record makes it no mirror. What was
    # open before belongs to the parent, or to the program that wrote the file.
    return replace(state, mirror=None, spans=())


def begin_turn(state: ViewState, record: Record) -> ViewState:
    """A turn begins."""
    event: Any = decode_known(record)
    return begin_span(replace(state, turns=max(state.turns, event.number)), record)


def begin_span(state: ViewState, record: Record) -> ViewState:
    """A span is open."""
    return replace(state, position=record.position, spans=with_begun(state.spans, record))


def end_span(state: ViewState, record: Record) -> ViewState:
    """A span is closed, if it was open."""
    spans = without_ended(state.spans, record)
    if spans is state.spans:
        return state
    return replace(state, position=record.position, spans=spans)


def end_call(state: ViewState, record: Record) -> ViewState:
    """A tool has ended: the view tells how, where its result is missing."""
    state = end_span(state, record)
    event = tool_event(record)
    if event is None or event.call_id is None:
        return state
    # Nothing is known of a call that was broken off: the tool may have done its work all the same.
    if isinstance(event, events.ToolError) and event.status != "error":
        return state
    end = end_in(record, state.estimator)
    return replace(state, layout=layouts.with_end(state.layout, event.call_id, end))
