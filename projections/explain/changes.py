"""The history of every message: each change to it after it was added, with its cause.

A plan covers only messages in view, and plans of older logs repeat messages that are long gone. So
a change is found by comparing the views before and after a record, not by reading its plan. The
state is persistent: a caller may keep the state at any request at no cost while the fold goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import decode_known
from eventctx.log.events import PreCompact, takes_back
from eventctx.log.plan import PROVIDER, Plan, find, numbers_in
from eventctx.log.record import Record
from eventctx.projections import numbering
from eventctx.projections.figures import CompactionFigures, Figures
from eventctx.projections.numbering import Numbering
from eventctx.projections.view import request_view
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series

What = Literal[
    "shortened",
    "thinking_left_out",
    "summarised",
    "dropped",
    "merged",
    "replaced",
    "restored",
    "set",
    "cleared",
    "pinned",
    "unpinned",
    "erased",
]
"""Kinds of change. ``replaced``: the host's system prompt took the place of a system message;
``set``, ``cleared``: such an event took the message out of the transcript."""


class CompactionFacts(msgspec.Struct, frozen=True):
    """A compaction's trigger, policy, request and sizes; sizes are tokens.

    ``figures`` are its sizes, ``tokens_before`` and ``tokens_after`` the estimates in its own
    record. ``asked_because`` is the reason given with the request. ``settings`` are those of
    ``strategy``; if that could not decide because of ``error``, ``fallback`` did, with settings of
    its own.
    """

    trigger: str
    strategy: str
    strategy_version: int
    requested_by: str | None
    asked_because: str | None
    fallback: str | None
    error: str | None
    settings: dict[str, Any]
    budget: int | None
    threshold: int | None
    target: int | None
    tokens_before: int
    tokens_after: int
    figures: CompactionFigures


class Cause(msgspec.Struct, frozen=True):
    """The record that made a change; ``compaction`` if it ended one. Times are UTC nanoseconds."""

    position: int
    type: str
    time: int
    turn: int | None
    iteration: int | None
    compaction: CompactionFacts | None = None


class Change(NamedTuple):
    """A change to message ``number``.

    ``reason`` is a plan's reason code. ``into`` is the message that replaces a merged one, if the
    view shows which, or that holds the provider's summary of it.
    """

    number: int
    what: What
    cause: Cause
    reason: str = ""
    into: int | None = None


class Origin(NamedTuple):
    """A message as it was added: its reference, and the time and place of its record."""

    ref: MessageRef
    type: str
    time: int
    turn_id: str | None
    iteration: int | None


class ChangesState(msgspec.Struct, frozen=True, gc=False):
    """All changes so far. ``origins`` are the messages as they were added, by number.

    ``listed`` are the runs of numbers that the last set left in the transcript; all numbers from
    ``listed_to`` on were added since. ``begun`` are compactions that have not ended, by span.
    ``plan`` is the plan in force, and ``planned`` the record that carries it. ``compacted`` are the
    positions of all applied compactions.
    """

    view: ViewState
    time: Numbering
    origins: Series[Origin]
    changes: Series[Change]
    listed: tuple[tuple[int, int], ...]
    listed_to: int
    begun: tuple[tuple[str | None, PreCompact], ...]
    plan: Plan | None
    planned: Cause | None
    compacted: Series[int]


def initial() -> ChangesState:
    """The changes of an empty stream."""
    return ChangesState(
        view=request_view.initial(),
        time=numbering.initial(),
        origins=Series(),
        changes=Series(),
        listed=(),
        listed_to=0,
        begun=(),
        plan=None,
        planned=None,
        compacted=Series(),
    )


def evolve(state: ChangesState, record: Record) -> ChangesState:
    """The changes after ``record``."""
    view = request_view.evolve(state.view, record)
    return advance(state, record, view, numbering.evolve(state.time, record))


def advance(state: ChangesState, record: Record, view: ViewState, time: Numbering) -> ChangesState:
    """The changes after ``record``, whose view and numbering the caller has folded already."""
    before = state.view
    origins = state.origins
    if record.type == "context:message_added":
        origins = origins.append(_origin(view.layout.refs[-1], record))
    state = replace(state, view=view, time=time, origins=origins)
    step = _STEPS.get(record.type)
    return state if step is None else step(state, before, record)


def with_figures(cause: Cause, figures: Figures) -> Cause:
    """The cause with the figures that its session gives the compaction, if it ended one."""
    known = figures.compactions.get(cause.position)
    if cause.compaction is None or known is None:
        return cause
    compaction = msgspec.structs.replace(cause.compaction, figures=known)
    return msgspec.structs.replace(cause, compaction=compaction)


def in_transcript(state: ChangesState, number: int) -> bool:
    """Whether a message that was added is still in the transcript."""
    return number >= state.listed_to or any(first <= number <= last for first, last in state.listed)


# -- steps ---------------------------------------------------------------------------------------


def _begin(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    event: PreCompact = decode_known(record)
    return replace(state, begun=(*state.begun, (record.span_id, event)))


def _compact(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    event: Any = decode_known(record)
    began = next((one for span, one in state.begun if span == record.span_id), None)
    state = replace(state, begun=tuple([one for one in state.begun if one[0] != record.span_id]))
    if event.outcome != "applied" or event.plan is None:
        return state
    compaction = CompactionFacts(
        trigger=event.trigger,
        strategy=event.strategy,
        strategy_version=event.strategy_version,
        requested_by=event.requested_by,
        asked_because=None if began is None else began.reason,
        fallback=event.fallback,
        error=event.error,
        settings={} if began is None else began.settings,
        budget=event.budget,
        threshold=event.threshold,
        target=event.target,
        tokens_before=event.tokens_before,
        tokens_after=event.tokens_after,
        # The request after it has yet to come; who knows the whole log puts its figures here.
        figures=CompactionFigures(event.tokens_before, True, event.tokens_after, True),
    )
    cause = _cause(state, record, compaction)
    plan: Plan = event.plan
    changes: list[Change] = []
    for ref, now in _pairs(before, state.view):
        run = find(plan.runs, ref.number)
        reason = "" if run is None else run.reason
        if now is not None:
            changes += _alterations(ref, now, cause, reason)
        elif run is not None:
            left: Any = run.disposition  # the message left the view: neither kept nor shortened
            into = _replacement(ref, state.view) if left == "merged" else None
            if reason == PROVIDER:
                into = plan.through
            changes.append(Change(ref.number, left, cause, reason, into))
    compacted = state.compacted
    if not takes_back(event):
        compacted = compacted.append(record.position)
    return replace(_with(state, changes), plan=plan, planned=cause, compacted=compacted)


def _set(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    event: Any = decode_known(record)
    cause = _cause(state, record)
    left = _numbers(state, before).difference(numbers_in(event.order))
    changes = [Change(number, "set", cause) for number in sorted(left)]
    for ref, now in _pairs(before, state.view):
        if now is not None:
            changes += _alterations(ref, now, cause)
    fresh = [ref for ref in state.view.layout.refs if ref.number >= before.next_number]
    return replace(
        _with(state, changes),
        origins=state.origins.extend(
            [_origin(ref, record) for ref in sorted(fresh, key=lambda ref: ref.number)]
        ),
        listed=event.order,
        listed_to=state.view.next_number,
    )


def _clear(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    cause = _cause(state, record)
    changes = [Change(number, "cleared", cause) for number in sorted(_numbers(state, before))]
    return replace(
        _with(state, changes), listed=(), listed_to=state.view.next_number, plan=None, planned=None
    )


def _restore(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    cause = _cause(state, record)
    changes: list[Change] = []
    for ref, now in _pairs(before, state.view):
        if now is not None:
            changes += _alterations(ref, now, cause)
    known = {ref.number for ref in before.layout.refs}
    for ref in state.view.layout.refs:
        if ref.number not in known:
            changes.append(Change(ref.number, "restored", cause))
            if ref.stripped:
                changes.append(Change(ref.number, "thinking_left_out", cause))
    return _with(state, changes)


def _request(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    event: Any = decode_known(record)
    return _set_prompt(state, before, record) if event.unbound else state


def _set_prompt(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    cause = _cause(state, record)
    pairs = [(ref, now) for ref, now in _pairs(before, state.view) if now is not None]
    return _with(state, [change for pair in pairs for change in _alterations(*pair, cause)])


def _pin(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    event: Any = decode_known(record)
    what: What = "pinned" if record.type == "context:pinned" else "unpinned"
    cause = _cause(state, record)
    return _with(state, [Change(number, what, cause) for number in event.numbers])


def _erase(state: ChangesState, before: ViewState, record: Record) -> ChangesState:
    event: Any = decode_known(record)
    cause = _cause(state, record)
    return _with(state, [Change(number, "erased", cause) for number in event.numbers])


def _origin(ref: MessageRef, record: Record) -> Origin:
    return Origin(ref, record.type, record.time, record.turn_id, record.iteration)


def _cause(state: ChangesState, record: Record, compaction: CompactionFacts | None = None) -> Cause:
    turn = numbering.turn_number(state.time, record.turn_id)
    return Cause(record.position, record.type, record.time, turn, record.iteration, compaction)


def _with(state: ChangesState, changes: Iterable[Change]) -> ChangesState:
    return replace(state, changes=state.changes.extend(changes))


def _numbers(state: ChangesState, view: ViewState) -> set[int]:
    """The numbers of the messages in the transcript of ``view``."""
    return numbers_in(state.listed).union(range(state.listed_to, view.next_number))


def _pairs(before: ViewState, after: ViewState) -> Iterator[tuple[MessageRef, MessageRef | None]]:
    """Every message that was in view, with its reference now; None if it left the view."""
    now = {ref.number: ref for ref in after.layout.refs}
    for ref in before.layout.refs:
        yield ref, now.get(ref.number)


def _alterations(
    ref: MessageRef, now: MessageRef, cause: Cause, reason: str = ""
) -> Iterator[Change]:
    """The changes to a message that stays in view, or is back in the place that it had."""
    if now.replaced and not ref.replaced:
        yield Change(ref.number, "replaced", cause)
    elif (ref.replaced and not now.replaced) or (ref.shortened and not now.shortened):
        yield Change(ref.number, "restored", cause)
    elif now.shortened and (now.position, now.index) != (ref.position, ref.index):
        yield Change(ref.number, "shortened", cause, reason)
    if now.stripped and not ref.stripped:
        yield Change(ref.number, "thinking_left_out", cause)


def _replacement(ref: MessageRef, view: ViewState) -> int | None:
    """The message in view that begins like a merged one; None if there is none, or no text."""
    if not ref.facts.mark:
        return None
    same = [one.number for one in view.layout.refs if one.facts.mark == ref.facts.mark]
    return next((number for number in same if number > ref.number), same[-1] if same else None)


_STEPS = {
    "context:request_prepared": _request,
    "context:pre_compact": _begin,
    "context:post_compact": _compact,
    "context:messages_set": _set,
    "context:cleared": _clear,
    "context:restored": _restore,
    "context:pinned": _pin,
    "context:unpinned": _pin,
    "context:erased": _erase,
    "context:system_prompt_set": _set_prompt,
}
