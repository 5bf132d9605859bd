"""The request view as a fold: the messages that a model is sent.

The transcript is everything that was added. A request shows it through the plan in force: some
messages whole, some shortened, some left out, with insertions among them. This fold keeps that view
up to date, record by record.

Invariant: the same records give the same view, from zero, from a snapshot or on another machine. A
step reads the record and the state before it, never a clock, a setting or a body's text. So
``context:request_prepared`` needs to hold a digest only, and any past request is derived again.

Invariant: between two breaks a view only grows at its end, so a provider's prompt cache stays warm.
A break is a compaction, a set, a clear, a restore, an erasure, a changed insertion, a late result,
or another model (``log.events.Break``). The next prepared request records the breaks since the one
before it.

The state holds references of the visible messages, not their texts: position and index of the body,
its digest, its facts and its tokens. Of messages out of view it holds runs of numbers and counts.
So it stays small however long the log is, which makes it cheap to snapshot and to open. A record
costs constant time, a break time in proportion to the view.

``layout`` gives the messages their order, ``planned`` applies a plan, ``steps`` has the changes to
the transcript and the turns, ``calibration`` learns how providers count. This module has the steps
of messages, compactions, requests and calls, and the table of all steps at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from eventctx.log import events
from eventctx.log.codec import decode_known
from eventctx.log.events import Break, RequestPrepared, takes_back
from eventctx.log.plan import Plan
from eventctx.log.record import Record
from eventctx.log.wire import WireForm
from eventctx.messages import calibration
from eventctx.messages.calibration import Calibration, Scale
from eventctx.messages.facts import Facts
from eventctx.messages.tokens import FAMILIES, Estimator
from eventctx.projections.view import layout as layouts
from eventctx.projections.view import steps
from eventctx.projections.view.entries import RENDERER, digest_of
from eventctx.projections.view.planned import apply_plan, reference, strip_thinking
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.state import (
    Spoken,
    ViewCounts,
    ViewState,
    after_compaction,
    counts,
    initial,
    with_break,
)

R = TypeVar("R", MessageRef, InsertionRef)

__all__ = [
    "ViewCounts",
    "ViewState",
    "as_requested",
    "counts",
    "evolve",
    "evolve_all",
    "initial",
    "prepare_request",
    "with_model",
    "without_thinking_of",
]


def evolve(state: ViewState, record: Record) -> ViewState:
    """The view after ``record``."""
    step = _STEPS.get(record.type)
    if step is not None:
        state = step(state, record)
    if state.position == record.position:
        return state
    return replace(state, position=record.position)


def evolve_all(state: ViewState, records: Sequence[Record]) -> ViewState:
    """The view after ``records``, that of ``evolve`` over them.

    Messages that were added in a row are folded in one step, which is far cheaper.
    """
    at, end = 0, len(records)
    while at < end:
        until = at
        while until < end and records[until].type == _MESSAGE_ADDED:
            until += 1
        if until - at > 1:
            state, taken = _add_together(state, records[at:until])
            at += taken
        if at < end:  # a message that comes too late, or a record of another type
            state = evolve(state, records[at])
            at += 1
    return state


def prepare_request(
    state: ViewState,
    *,
    scale: Scale | None = None,
    budget: int | None = None,
    model: str | None = None,
    tools_digest: str | None = None,
    floor_sent: bool = False,
    reconstructed: bool = False,
    wire: WireForm | None = None,
    unbound: tuple[tuple[int, int], ...] = (),
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
        breaks=(*_breaks_until_now(state), "model") if unbound else _breaks_until_now(state),
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
        unbound=unbound,
    )


def _absent_demands(state: ViewState) -> int:
    """Demands that are nowhere in the view. Most views show all messages, and need no search."""
    if not state.layout.shortened and not any(state.hidden):
        return 0
    return state.spoken.count_absent(state.layout)


def _breaks_until_now(state: ViewState) -> tuple[Break, ...]:
    """The breaks so far; ``late_result`` if the round that was unfinished reads differently now."""
    if state.shown is None or state.breaks:
        return state.breaks
    start, length, digest = state.shown
    if digest_of(state.layout.slice(start, start + length)) == digest:
        return ()
    return ("late_result",)


def _add(state: ViewState, record: Record) -> ViewState:
    """A message comes last, or in its place if it is a result that came late."""
    number = state.next_number
    ref = reference(record, 0, number, FAMILIES[state.calibration.family])
    layout = layouts.append(state.layout, ref)
    breaks = state.breaks
    if layout.late != state.layout.late:
        breaks = with_break(breaks, "late_result")
        event: Any = decode_known(record)
        if event.unbound:
            layout = layouts.rebuild(
                strip_thinking(layout.refs, event.unbound, state.estimator), layout
            )
    return replace(
        state,
        position=record.position,
        next_number=number + 1,
        messages=state.messages + 1,
        layout=layout,
        breaks=breaks,
        spoken=state.spoken.with_message(ref) if _asks(state.spoken, ref.facts) else state.spoken,
    )


def _add_together(state: ViewState, records: Sequence[Record]) -> tuple[ViewState, int]:
    """The view after the first of these messages, and their number: as ``layout.extend``."""
    first = state.next_number
    estimator = state.estimator
    refs = [reference(record, 0, number, estimator) for number, record in enumerate(records, first)]
    layout, taken = layouts.extend(state.layout, refs)
    if not taken:
        return state, 0
    said = state.spoken
    for ref in refs[:taken]:
        if _asks(said, ref.facts):
            said = said.with_message(ref)
    after = replace(
        state,
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


def _compact(state: ViewState, record: Record) -> ViewState:
    """A compaction's plan is in force, if it has one."""
    event: Any = decode_known(record)
    if event.outcome == "skipped" and event.trigger != "manual":
        # No message could go, or there was a veto: the next try waits until the view has grown.
        return after_compaction(state)
    if event.outcome != "applied" or event.plan is None:
        return state
    plan: Plan = event.plan
    after = apply_plan(state, plan, record)
    if takes_back(event):
        return replace(after_compaction(after), breaks=with_break(state.breaks, "set"))
    if event.trigger == "imported":
        found = calibration.note_compacted(after.calibration, record.position)
        after = replace(after, calibration=found)
    return replace(
        after_compaction(after),
        breaks=with_break(state.breaks, "compaction"),
        compactions=state.compactions + 1,
    )


def _prepare(state: ViewState, record: Record) -> ViewState:
    """A request records the view: later breaks count from here."""
    event: RequestPrepared = decode_known(record)
    state = as_requested(state, event)
    shown = None
    if state.layout.region:
        start = len(state.layout.sealed)
        tail = state.layout.tail()
        shown = (start, len(tail), digest_of(tail))
    size = calibration.RequestSize(
        record.position, state.layout.tokens, not event.breaks, event.budget
    )
    state = replace(
        state,
        breaks=(),
        shown=shown,
        calibration=calibration.note_prepared(state.calibration, size),
    )
    return _calibrate(state, calibration.note_called(state.calibration, event.model))


def as_requested(state: ViewState, event: RequestPrepared) -> ViewState:
    """The view as ``event`` asked for it, before the insertions of that request."""
    if event.renderer < _KNOWS_ENDS:
        state = replace(state, layout=layouts.as_plain(state.layout, state.next_number - 1))
    return without_thinking_of(state, event.unbound)


def without_thinking_of(state: ViewState, unbound: tuple[tuple[int, int], ...]) -> ViewState:
    """The view without the thinking of the messages in the runs ``unbound``."""
    if not unbound:
        return state
    refs = strip_thinking(state.layout.refs, unbound, state.estimator)
    return replace(state, layout=layouts.rebuild(refs, state.layout))


_KNOWS_ENDS = 2
"""The first version whose made-up results say what is known of their calls."""


def _call(state: ViewState, record: Record) -> ViewState:
    """A model was called: its family counts the tokens."""
    state = steps.begin_span(state, record)
    event: Any = decode_known(record)
    if event.prepared is None:
        return state  # a call that sends no view, such as a summarizer's, does not calibrate it
    return _calibrate(state, calibration.note_called(state.calibration, event.model))


def _report(state: ViewState, record: Record) -> ViewState:
    """The provider's count of a request scales later estimates."""
    event: Any = decode_known(record)
    if event.prepared is None:
        return state
    called = _calibrate(state, calibration.note_called(state.calibration, event.model))
    learned = calibration.note_reported(
        called.calibration, event.prepared, event.prompt, event.model
    )
    return replace(called, calibration=learned)


def _send(state: ViewState, record: Record) -> ViewState:
    """The host sent another list than the view, so the report will be for that list."""
    event: Any = decode_known(record)
    if event.untold is not None and event.difference == 0:
        return state
    sent = calibration.note_sent(state.calibration, event.prepared, event.difference)
    return replace(state, calibration=sent)


def _store_content(state: ViewState, record: Record) -> ViewState:
    """A definition of tools is stored, and need not be again."""
    event: Any = decode_known(record)
    if event.kind != "tools":
        return state
    return replace(state, tools=state.tools | {event.digest})


def with_model(state: ViewState, model: str | None) -> ViewState:
    """The view, counted for a request to ``model``; unchanged if the model is not known."""
    return _calibrate(state, calibration.note_called(state.calibration, model))


def _calibrate(state: ViewState, new: Calibration) -> ViewState:
    """The view under a new calibration; its tokens are counted again if the family changed."""
    before, estimator = state.estimator, FAMILIES[new.family]
    if estimator == before:
        return state if new is state.calibration else replace(state, calibration=new)
    refs = [_count_tokens(ref, estimator) for ref in state.layout.refs]
    insertions = [_count_tokens(ref, estimator) for ref in state.layout.insertions]
    ends = state.layout.ends.recount(estimator)
    layout = replace(layouts.build(refs, insertions, ends), late=state.layout.late)
    size_after_compaction = (
        layout.tokens * state.size_after_compaction // max(1, state.layout.tokens)
    )
    new = calibration.recount(new, layout.tokens, state.layout.tokens)
    return replace(
        state, layout=layout, size_after_compaction=size_after_compaction, calibration=new
    )


def _count_tokens(ref: R, estimator: Estimator) -> R:
    return msgspec.structs.replace(ref, tokens=estimator.tokens(ref.facts))


def _name(event: type[events.Event]) -> str:
    return str(event.__struct_config__.tag)


_MESSAGE_ADDED = _name(events.MessageAdded)

_STEPS = {
    _name(events.SessionStart): steps.start_session,
    _name(events.SessionFork): steps.leave_file,
    _name(events.SessionTakenOver): steps.leave_file,
    _name(events.MessageAdded): _add,
    _name(events.MessagesSet): steps.set_messages,
    _name(events.Cleared): steps.clear,
    _name(events.Pinned): steps.pin,
    _name(events.Unpinned): steps.unpin,
    _name(events.Restored): steps.restore,
    _name(events.InstructionWithdrawn): steps.withdraw_demand,
    _name(events.Erased): steps.erase,
    _name(events.SystemPromptSet): steps.set_prompts,
    _name(events.PostCompact): _compact,
    _name(events.RequestPrepared): _prepare,
    _name(events.RequestContent): _store_content,
    _name(events.RequestSent): _send,
    _name(events.PromptSubmit): steps.begin_turn,
    _name(events.PromptComplete): steps.end_span,
    _name(events.PlanStart): steps.begin_span,
    _name(events.PlanEnd): steps.end_span,
    _name(events.ProviderRequest): _call,
    _name(events.ProviderResponse): steps.end_span,
    _name(events.ProviderError): steps.end_span,
    _name(events.ToolPre): steps.begin_span,
    _name(events.ToolPost): steps.end_call,
    _name(events.ToolError): steps.end_call,
    _name(events.UsageReported): _report,
}


def tools_of(event: RequestPrepared) -> str | None:
    """The name of a request's tool definitions, None if they are not known: the same for equal ones
    of a session, which are stored once.
    """
    if event.wire is not None and event.wire.tools is not None:
        position, index = event.wire.tools
        return f"{position}.{index}"
    return event.tools_digest
