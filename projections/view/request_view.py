"""The request view as a fold: the messages that a model is sent.

The state holds references of the visible messages, the position of the plan in force, and counts of
the other messages, so it stays small however long the log is; that makes it cheap to snapshot and
to open. A record costs constant time, a break time in proportion to the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from eventctx.log import events
from eventctx.log.codec import decode_known
from eventctx.log.events import Break, Located, RequestPrepared
from eventctx.log.plan import Insertion, Plan, find, without
from eventctx.log.record import Record
from eventctx.log.wire import WireForm
from eventctx.messages import calibration
from eventctx.messages.calibration import Calibration, Scale
from eventctx.messages.facts import Facts, decode_facts
from eventctx.messages.tokens import FAMILIES, Estimator
from eventctx.projections.view import layout as layouts
from eventctx.projections.view import spoken, unended
from eventctx.projections.view.call_ends import end_in
from eventctx.projections.view.entries import RENDERER, digest_of
from eventctx.projections.view.layout import Layout
from eventctx.projections.view.planned import (
    apply_plan,
    insertion_refs,
    reference,
    replaced_in,
    stripped_in,
)
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.spoken import Spoken
from eventctx.projections.view.state import ViewCounts, ViewState, after_compaction, counts, initial

__all__ = [
    "ViewCounts",
    "ViewState",
    "as_rendered",
    "counts",
    "evolve",
    "evolve_all",
    "initial",
    "prepared",
    "with_model",
]

R = TypeVar("R", MessageRef, InsertionRef)


def evolve(state: ViewState, record: Record) -> ViewState:
    """The view after ``record``."""
    step = _STEPS.get(record.type)
    if step is not None:
        state = step(state, record)
    if state.position == record.position:
        return state
    return ViewState(record.position, *state[1:])  # a third of the time of _replace


def evolve_all(state: ViewState, records: Sequence[Record]) -> ViewState:
    """The view after ``records``, that of ``evolve`` over them.

    Messages that were added one behind the other are folded in one step, which is far cheaper.
    """
    at, end = 0, len(records)
    while at < end:
        until = at
        while until < end and records[until].type == _ADDED:
            until += 1
        if until - at > 1:
            state, taken = _added_together(state, records[at:until])
            at += taken
        if at < end:  # a message that comes too late, or a record of another type
            state = evolve(state, records[at])
            at += 1
    return state


def prepared(
    state: ViewState,
    *,
    scale: Scale | None = None,
    budget: int | None = None,
    model: str | None = None,
    tools_digest: str | None = None,
    floor_sent: bool = False,
    reconstructed: bool = False,
    wire: WireForm | None = None,
) -> RequestPrepared:
    """The event that records the view of this state as a request.

    ``scale`` turns the estimator's counts to tokens (the state's own by default); ``budget`` is in
    tokens. The other arguments are fields of the event.
    """
    digest, entries, counted = state.layout.measure()
    scale = calibration.scale(state.calibration) if scale is None else scale
    return RequestPrepared(
        renderer=RENDERER,
        last_message=state.next_number - 1,
        messages=entries,
        tokens=scale.tokens(counted),
        digest=digest,
        plan=state.plan_position,
        breaks=_breaks_until_now(state),
        budget=budget,
        model=model,
        tools_digest=tools_digest,
        floor_sent=floor_sent,
        reconstructed=reconstructed,
        estimator=state.estimator.name,
        factor=scale.factor,
        reserve=scale.reserve,
        wire=wire,
        demands_absent=_absent_demands(state) if state.spoken.demands else None,
    )


def _absent_demands(state: ViewState) -> int:
    """Demands that stand nowhere in the view. Most views show all messages, and need no search."""
    if not state.layout.shortened and not any(state.hidden):
        return 0
    return spoken.absent(state.spoken, state.layout)


def as_rendered(state: ViewState, renderer: int) -> ViewState:
    """The view as a request made with this version of the rules shows it."""
    if renderer >= _KNOWS_ENDS:
        return state
    return state._replace(layout=layouts.as_plain(state.layout, state.next_number - 1))


_KNOWS_ENDS = 2
"""The first version whose made-up results say what is known of their calls."""


# -- steps ---------------------------------------------------------------------------------------


def _started(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    return state._replace(mirror=None if event.imported_at is None else event.source or "a file")


def _ours(state: ViewState, record: Record) -> ViewState:
    # A fork reads through its parent's records; its own first record makes it no mirror. What was
    # open before belongs to the parent, or to the program that wrote the file.
    return state._replace(mirror=None, spans=())


def _added(state: ViewState, record: Record) -> ViewState:
    number = state.next_number
    ref = reference(record, 0, number, FAMILIES[state.calibration.family])
    layout = layouts.append(state.layout, ref)
    breaks = state.breaks
    if layout.late != state.layout.late:
        breaks = _with_break(breaks, "late_result")
        event: Any = decode_known(record)
        if event.unbound:
            layout = _built(stripped_in(layout.refs, event.unbound, state.estimator), layout)
    # Written out, since this step runs for every message and _replace costs 1 µs.
    return ViewState(
        record.position,
        number + 1,
        state.messages + 1,
        layout,
        state.gone,
        state.plan_position,
        state.pins,
        breaks,
        state.size_after_compaction,
        state.messages_after_compaction,
        state.compactions,
        state.hidden,
        state.turns,
        state.shown,
        state.calibration,
        state.tools,
        state.mirror,
        state.spans,
        spoken.added(state.spoken, ref) if _asks(state.spoken, ref.facts) else state.spoken,
    )


def _added_together(state: ViewState, records: Sequence[Record]) -> tuple[ViewState, int]:
    """The view after the first of these messages, and their number: as ``layout.extended``."""
    first = state.next_number
    estimator = state.estimator
    refs = [reference(record, 0, number, estimator) for number, record in enumerate(records, first)]
    layout, taken = layouts.extended(state.layout, refs)
    if not taken:
        return state, 0
    said = state.spoken
    for ref in refs[:taken]:
        if _asks(said, ref.facts):
            said = spoken.added(said, ref)
    after = state._replace(
        position=records[taken - 1].position,
        next_number=first + taken,
        messages=state.messages + taken,
        layout=layout,
        spoken=said,
    )
    return after, taken


def _asks(said: Spoken, facts: Facts) -> bool:
    """Whether a message is the first task or holds demands; few are either."""
    return facts.human and (facts.demands > 0 or said.task is None)


def _built(refs: list[MessageRef], layout: Layout) -> Layout:
    """A layout with the same messages in another form, and all else as before."""
    built = layouts.build(refs, layout.insertions, layout.ends)
    return built._replace(late=layout.late)


def _set(state: ViewState, record: Record) -> ViewState:
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
    refs = stripped_in(refs, event.unbound, state.estimator)
    return state._replace(
        next_number=state.next_number + fresh,
        messages=messages,
        layout=layouts.build(
            refs, _still_standing(state, event.order), state.layout.ends.only_of(refs)
        ),
        breaks=_with_break(state.breaks, "set"),
        hidden=(hidden["summarised"], hidden["dropped"], hidden["merged"]),
        pins=state.pins.intersection(ref.number for ref in refs),
        spoken=spoken.only_of(
            state.spoken, event.order, [ref for ref in refs if ref.number >= state.next_number]
        ),
    )


def _still_standing(
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


def _cleared(state: ViewState, record: Record) -> ViewState:
    prompts = [one for one in state.layout.insertions if one.kind == "system_prompt"]
    return initial()._replace(
        next_number=state.next_number,
        layout=layouts.build((), prompts) if prompts else layouts.EMPTY,
        breaks=_with_break(state.breaks, "clear"),
        compactions=state.compactions,
        turns=state.turns,
        calibration=state.calibration,
        mirror=state.mirror,
        spans=state.spans,
    )


def _turn(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    return _began(state._replace(turns=max(state.turns, event.number)), record)


def _began(state: ViewState, record: Record) -> ViewState:
    return state._replace(position=record.position, spans=unended.begun(state.spans, record))


def _ended(state: ViewState, record: Record) -> ViewState:
    spans = unended.ended(state.spans, record)
    if spans is state.spans:
        return state
    return state._replace(position=record.position, spans=spans)


def _call_ended(state: ViewState, record: Record) -> ViewState:
    state = _ended(state, record)
    event = unended.tool_event(record)
    if event is None or event.call_id is None:
        return state
    # Nothing is known of a call that was broken off: the tool may have done its work all the same.
    if isinstance(event, events.ToolError) and event.status != "error":
        return state
    end = end_in(record, state.estimator)
    return state._replace(layout=layouts.with_end(state.layout, event.call_id, end))


def _pinned(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    return state._replace(pins=state.pins.union(event.numbers))


def _unpinned(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    return state._replace(pins=state.pins.difference(event.numbers))


def _restored(state: ViewState, record: Record) -> ViewState:
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
        back[located.number] = _located(located, state.estimator)
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
    refs = stripped_in(refs, event.unbound, state.estimator)
    return state._replace(
        gone=tuple(gone),
        layout=layouts.build(refs, state.layout.insertions, state.layout.ends),
        breaks=_with_break(state.breaks, "restore"),
        hidden=(summarised, dropped, merged),
    )


def _withdrawn(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    return state._replace(spoken=spoken.taken_back(state.spoken, event.number, event.demand))


def _located(located: Located, estimator: Estimator) -> MessageRef:
    facts = decode_facts(located.facts)
    return MessageRef(
        located.number,
        located.position,
        located.index,
        located.digest,
        facts,
        estimator.tokens(facts),
    )


def _prompted(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    rows = [Insertion("system_prompt", index) for index in range(len(record.bodies))]
    prompts = insertion_refs(rows, state, record)
    others = [one for one in state.layout.insertions if one.kind != "system_prompt"]
    refs = stripped_in(state.layout.refs, event.unbound, state.estimator)
    refs = replaced_in(refs, event.replaced)
    layout = layouts.build(refs, [*prompts, *others], state.layout.ends)
    layout = layout._replace(late=state.layout.late)
    # A system prompt set before the first request breaks no earlier view.
    sent = bool(state.calibration.requests)
    breaks = _with_break(state.breaks, "insertion") if sent else state.breaks
    return state._replace(layout=layout, breaks=breaks)


def _erased(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    layout = state.layout
    if event.unbound:
        refs = stripped_in(layout.refs, event.unbound, state.estimator)
        layout = _built(refs, layout)
    left = spoken.without(state.spoken, event.numbers)
    breaks = _with_break(state.breaks, "erase")
    return state._replace(layout=layout, breaks=breaks, spoken=left)


def _compacted(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    if event.outcome == "skipped" and event.trigger != "manual":
        # No message could go, or there was a veto: the next try waits until the view has grown.
        return after_compaction(state)
    if event.outcome != "applied" or event.plan is None:
        return state
    plan: Plan = event.plan
    after = apply_plan(state, plan, record)
    if event.trigger == "imported":
        found = calibration.compacted(after.calibration, record.position)
        after = after._replace(calibration=found)
    return after_compaction(after)._replace(
        breaks=_with_break(state.breaks, "compaction"), compactions=state.compactions + 1
    )


def _prepared(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    state = as_rendered(state, event.renderer)
    shown = None
    if state.layout.region:
        start = len(state.layout.sealed)
        tail = state.layout.tail()
        shown = (start, len(tail), digest_of(tail))
    size = calibration.RequestSize(
        record.position, state.layout.tokens, not event.breaks, event.budget
    )
    state = state._replace(
        breaks=(), shown=shown, calibration=calibration.prepared(state.calibration, size)
    )
    return _calibrated(state, calibration.called(state.calibration, event.model))


def _called(state: ViewState, record: Record) -> ViewState:
    state = _began(state, record)
    event: Any = decode_known(record)
    if event.prepared is None:
        return state  # a call that sends no view, such as a summarizer's, does not calibrate it
    return _calibrated(state, calibration.called(state.calibration, event.model))


def _reported(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    if event.prepared is None:
        return state
    called = _calibrated(state, calibration.called(state.calibration, event.model))
    learned = calibration.reported(called.calibration, event.prepared, event.prompt, event.model)
    return called._replace(calibration=learned)


def _content(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    if event.kind != "tools":
        return state
    return state._replace(tools=state.tools | {event.digest})


def with_model(state: ViewState, model: str | None) -> ViewState:
    """The view, counted for a request to ``model``; unchanged if the model is not known."""
    return _calibrated(state, calibration.called(state.calibration, model))


def _calibrated(state: ViewState, new: Calibration) -> ViewState:
    """The view under a new calibration; its tokens are counted again if the family changed."""
    before, estimator = state.estimator, FAMILIES[new.family]
    if estimator == before:
        return state if new is state.calibration else state._replace(calibration=new)
    refs = [_counted(ref, estimator) for ref in state.layout.refs]
    insertions = [_counted(ref, estimator) for ref in state.layout.insertions]
    ends = state.layout.ends.recounted(estimator)
    layout = layouts.build(refs, insertions, ends)._replace(late=state.layout.late)
    size_after_compaction = (
        layout.tokens * state.size_after_compaction // max(1, state.layout.tokens)
    )
    new = calibration.recounted(new, layout.tokens, state.layout.tokens)
    return state._replace(
        layout=layout, size_after_compaction=size_after_compaction, calibration=new
    )


def _counted(ref: R, estimator: Estimator) -> R:
    return msgspec.structs.replace(ref, tokens=estimator.tokens(ref.facts))


def _breaks_until_now(state: ViewState) -> tuple[Break, ...]:
    """The breaks so far; ``late_result`` if the round that was unfinished reads differently now."""
    if state.shown is None or state.breaks:
        return state.breaks
    start, length, digest = state.shown
    if digest_of(state.layout.slice(start, start + length)) == digest:
        return ()
    return ("late_result",)


def _with_break(breaks: tuple[Break, ...], kind: Break) -> tuple[Break, ...]:
    return breaks if kind in breaks else (*breaks, kind)


def _name(event: type[events.Event]) -> str:
    return str(event.__struct_config__.tag)


_ADDED = _name(events.MessageAdded)

_STEPS = {
    _name(events.SessionStart): _started,
    _name(events.SessionFork): _ours,
    _name(events.SessionTakenOver): _ours,
    _name(events.MessageAdded): _added,
    _name(events.MessagesSet): _set,
    _name(events.Cleared): _cleared,
    _name(events.Pinned): _pinned,
    _name(events.Unpinned): _unpinned,
    _name(events.Restored): _restored,
    _name(events.InstructionWithdrawn): _withdrawn,
    _name(events.Erased): _erased,
    _name(events.SystemPromptSet): _prompted,
    _name(events.PostCompact): _compacted,
    _name(events.RequestPrepared): _prepared,
    _name(events.RequestContent): _content,
    _name(events.PromptSubmit): _turn,
    _name(events.PromptComplete): _ended,
    _name(events.PlanStart): _began,
    _name(events.PlanEnd): _ended,
    _name(events.ProviderRequest): _called,
    _name(events.ProviderResponse): _ended,
    _name(events.ProviderError): _ended,
    _name(events.ToolPre): _began,
    _name(events.ToolPost): _call_ended,
    _name(events.ToolError): _call_ended,
    _name(events.UsageReported): _reported,
}
