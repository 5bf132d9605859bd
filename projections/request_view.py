"""The request view: what a model is sent. A fold that keeps only what is in view.

The state holds references of the visible messages, the plan in force, and counts of the rest, so
it stays small however long the log is; that makes it cheap to snapshot and to open. Its cost per
record is constant, and proportional to the view at a break.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from eventctx import events, gauge
from eventctx.codec import decode_known
from eventctx.events import Break, Located, RequestPrepared
from eventctx.facts import decode_facts, without_bound
from eventctx.gauge import Gauge, Scale
from eventctx.plan import (
    Disposition,
    Insertion,
    Plan,
    Run,
    find,
    finder,
    joined,
    numbers_in,
    runs_of,
    without,
)
from eventctx.projections import layout as layouts
from eventctx.projections.layout import Layout
from eventctx.record import Record
from eventctx.refs import InsertionRef, MessageRef
from eventctx.tokens import FAMILIES, Estimator

R = TypeVar("R", MessageRef, InsertionRef)

_HIDDEN = ("summarised", "dropped", "merged")


class ViewState(NamedTuple):
    """The view after some record of a stream.

    ``position`` is that record's (-1: none), ``next_number`` the number of the next message,
    ``messages`` how many the transcript holds. ``gone`` are the runs of numbers that compactions
    took out of view, ``hidden`` counts them as summarised, dropped and merged. ``breaks`` happened
    since the last prepared request. ``low_water`` is the view's size, as the estimator counts, and
    ``low_messages`` its messages but for system ones, after the last compaction. ``turns`` is the
    number of the last turn. ``shown`` is what the last request showed of a round in progress:
    where it began, how many entries, and their digest; None where no round was in progress.
    ``gauge`` is what is known of token counts.
    """

    position: int
    next_number: int
    messages: int
    layout: Layout
    gone: tuple[Run, ...]
    plan_position: int | None
    pins: frozenset[int]
    breaks: tuple[Break, ...]
    low_water: int
    low_messages: int
    compactions: int
    hidden: tuple[int, int, int]
    turns: int
    shown: tuple[int, int, str] | None
    gauge: Gauge

    @property
    def estimator(self) -> Estimator:
        """What the tokens of this view are counted with."""
        return FAMILIES[self.gauge.family]


class Counts(NamedTuple):
    """What became of the transcript's messages in a view. Their sum is the transcript's length.

    ``omitted`` are results that answer no call in view.
    """

    kept: int
    shortened: int
    summarised: int
    dropped: int
    merged: int
    omitted: int


def initial() -> ViewState:
    """The view of an empty stream."""
    return ViewState(
        position=-1,
        next_number=0,
        messages=0,
        layout=layouts.EMPTY,
        gone=(),
        plan_position=None,
        pins=frozenset(),
        breaks=(),
        low_water=0,
        low_messages=0,
        compactions=0,
        hidden=(0, 0, 0),
        turns=0,
        shown=None,
        gauge=gauge.UNREAD,
    )


def evolve(state: ViewState, record: Record) -> ViewState:
    """The view after ``record``."""
    step = _STEPS.get(record.type)
    if step is not None:
        state = step(state, record)
    if state.position == record.position:
        return state
    return state._replace(position=record.position)


def counts(state: ViewState) -> Counts:
    """Dispositions of all messages of the transcript at this point."""
    shortened = state.layout.shortened
    omitted = state.layout.omitted
    return Counts(len(state.layout.refs) - shortened - omitted, shortened, *state.hidden, omitted)


def prepared(
    state: ViewState,
    *,
    scale: Scale | None = None,
    budget: int | None = None,
    model: str | None = None,
    tools_digest: str | None = None,
    floor_sent: bool = False,
    reconstructed: bool = False,
) -> RequestPrepared:
    """The event that records the view of this state as a request."""
    digest, entries, counted = state.layout.measure()
    scale = gauge.scale(state.gauge) if scale is None else scale
    return RequestPrepared(
        renderer=layouts.RENDERER,
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
    )


# -- steps ---------------------------------------------------------------------------------------


def reference(
    record: Record, index: int, number: int, estimator: Estimator, shortened: bool = False
) -> MessageRef:
    """The reference of message ``number``, whose body is ``index`` of ``record``."""
    body = record.bodies[index]
    facts = decode_facts(body.facts)
    return MessageRef(
        number, record.position, index, body.digest, facts, estimator.tokens(facts), shortened
    )


def with_unbound(state: ViewState, unbound: tuple[tuple[int, int], ...]) -> ViewState:
    """The view without the thinking of these messages, as a plan with ``unbound`` makes it."""
    refs = _bared(state.layout.refs, unbound, state.estimator)
    layout = layouts.build(refs, state.layout.insertions)
    return at_low_water(state._replace(layout=layout))


def _bared(
    refs: Iterable[MessageRef], unbound: tuple[tuple[int, int], ...], estimator: Estimator
) -> list[MessageRef]:
    numbers = numbers_in(unbound)
    return [bared(ref, estimator) if ref.number in numbers else ref for ref in refs]


def bared(ref: MessageRef, estimator: Estimator) -> MessageRef:
    """The reference of the same message, shown without its bound thinking blocks."""
    if not ref.facts.bound:
        return ref
    facts = without_bound(ref.facts)
    return msgspec.structs.replace(ref, facts=facts, tokens=estimator.tokens(facts), bare=True)


def unbound_by(before: Layout, after: Layout) -> tuple[tuple[int, int], ...]:
    """Numbers whose bound thinking stands behind the first place where ``after`` differs."""
    old, new = before.entries(), after.entries()
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    numbers = sorted(
        entry.ref.number
        for entry in new[same:]
        if entry.kind == "message" and isinstance(entry.ref, MessageRef) and entry.ref.facts.bound
    )
    runs = joined([Run(number, number, "kept", "") for number in numbers])
    return tuple([(run.first, run.last) for run in runs])


def _added(state: ViewState, record: Record) -> ViewState:
    number = state.next_number
    layout = layouts.append(
        state.layout, reference(record, 0, number, FAMILIES[state.gauge.family])
    )
    breaks = state.breaks
    if layout.late != state.layout.late:
        breaks = _with(breaks, "late_result")
        event: Any = decode_known(record)
        if event.unbound:
            refs = _bared(layout.refs, event.unbound, state.estimator)
            layout = layouts.build(refs, layout.insertions)._replace(late=layout.late)
    # Written out: the one step that runs for every message, and _replace costs 1 µs.
    return ViewState(
        record.position,
        number + 1,
        state.messages + 1,
        layout,
        state.gone,
        state.plan_position,
        state.pins,
        breaks,
        state.low_water,
        state.low_messages,
        state.compactions,
        state.hidden,
        state.turns,
        state.shown,
        state.gauge,
    )


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
    refs = _bared(refs, event.unbound, state.estimator)
    return state._replace(
        next_number=state.next_number + fresh,
        messages=messages,
        layout=layouts.build(refs, _still_standing(state, event.order)),
        breaks=_with(state.breaks, "set"),
        hidden=(hidden["summarised"], hidden["dropped"], hidden["merged"]),
        pins=state.pins.intersection(ref.number for ref in refs),
    )


def _still_standing(
    state: ViewState, order: tuple[tuple[int, int], ...]
) -> tuple[InsertionRef, ...]:
    """Insertions of which something that they stand for is still in the transcript."""
    return tuple(
        one
        for one in state.layout.insertions
        if any(
            first <= end and start <= last
            for start, end in one.stands_for or ((0, one.through),)
            for first, last in order
        )
    )


def _cleared(state: ViewState, record: Record) -> ViewState:
    return initial()._replace(
        next_number=state.next_number,
        breaks=_with(state.breaks, "clear"),
        compactions=state.compactions,
        turns=state.turns,
        gauge=state.gauge,
    )


def _turn(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    return state._replace(turns=max(state.turns, event.number))


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
    whole = {ref.number for ref in state.layout.refs if not ref.shortened}
    shortened = {ref.number for ref in state.layout.refs if ref.shortened}
    for located in event.messages:
        run = find(state.gone, located.number)
        if located.number in whole or (run is None and located.number not in shortened):
            continue
        if run is not None and located.number not in shortened:
            summarised -= run.disposition == "summarised"
            dropped -= run.disposition == "dropped"
            merged -= run.disposition == "merged"
        back[located.number] = _located(located, state.estimator)
    gone = without(state.gone, sorted(back))
    # Whole messages take the place of their shortened forms.
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
    refs = _bared(refs, event.unbound, state.estimator)
    return state._replace(
        gone=tuple(gone),
        layout=layouts.build(refs, state.layout.insertions),
        breaks=_with(state.breaks, "restore"),
        hidden=(summarised, dropped, merged),
    )


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


def _erased(state: ViewState, record: Record) -> ViewState:
    return state._replace(breaks=_with(state.breaks, "erase"))


def _compacted(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    if event.outcome == "skipped" and event.trigger != "manual":
        # Nothing could go, or it was vetoed: not asked again until the view has grown.
        return at_low_water(state)
    if event.outcome != "applied" or event.plan is None:
        return state
    plan: Plan = event.plan
    after = apply_plan(state, plan, record)
    return at_low_water(after)._replace(
        breaks=_with(state.breaks, "compaction"), compactions=state.compactions + 1
    )


def at_low_water(state: ViewState) -> ViewState:
    """The view as a compaction left it, from where it grows until the next one is due."""
    return state._replace(
        low_water=state.layout.tokens, low_messages=conversation_length(state.layout)
    )


def conversation_length(layout: Layout) -> int:
    """How many messages are in view, system messages apart."""
    return sum([ref.facts.kind != "system" for ref in layout.refs])


def apply_plan(state: ViewState, plan: Plan, record: Record) -> ViewState:
    """The view under ``plan``, carried by ``record``; only what is visible can stay visible."""
    texts = {short.number: short for short in plan.shortened}
    refs: list[MessageRef] = []
    leaving: list[tuple[int, Disposition]] = []
    covering = finder(plan.runs)
    first, last = 0, -1
    disposition: Disposition = "kept"
    for ref in state.layout.refs:
        number = ref.number
        if not first <= number <= last:
            run = covering(number)
            first, last, disposition = (
                (number, number, "kept") if run is None else (run.first, run.last, run.disposition)
            )
        if disposition == "kept":
            refs.append(ref)
        elif disposition == "shortened":
            refs.append(_shortened(ref, texts.get(number), record, state.estimator))
        else:
            leaving.append((number, disposition))
    if plan.unbound:
        refs = _bared(refs, plan.unbound, state.estimator)
    hidden: dict[str, int] = dict(zip(_HIDDEN, state.hidden, strict=True))
    gone = runs_of((number, how, "") for number, how in sorted(leaving))
    for run in gone:
        hidden[run.disposition] += run.last - run.first + 1
    insertions = _insertion_refs(plan.insertions, state, record)
    return state._replace(
        layout=layouts.build(refs, insertions),
        gone=joined([*state.gone, *gone]) if gone else state.gone,
        plan_position=record.position,
        hidden=(hidden["summarised"], hidden["dropped"], hidden["merged"]),
    )


def with_insertions(
    state: ViewState, insertions: tuple[Insertion, ...], record: Record
) -> ViewState:
    """The view of one request that has insertions of its own, carried by ``record``."""
    if not insertions:
        return state
    added = _insertion_refs(insertions, state, record)
    together = [*state.layout.insertions, *added]
    return state._replace(layout=layouts.build(state.layout.refs, together))


def _insertion_refs(
    insertions: tuple[Insertion, ...], state: ViewState, record: Record
) -> list[InsertionRef]:
    current = {(one.position, one.index): one for one in state.layout.insertions}
    refs: list[InsertionRef] = []
    for insertion in insertions:
        if insertion.at is not None and (insertion.at, insertion.body) in current:
            # What it stood before may be gone: the plan says where it stands now.
            known = current[insertion.at, insertion.body]
            refs.append(msgspec.structs.replace(known, before=insertion.before))
            continue
        body = record.bodies[insertion.body]
        facts = decode_facts(body.facts)
        refs.append(
            InsertionRef(
                insertion.kind,
                record.position,
                insertion.body,
                body.digest,
                facts,
                state.estimator.tokens(facts),
                insertion.before,
                insertion.stands_for,
                state.next_number - 1,
                insertion.depth,
            )
        )
    return refs


def _shortened(ref: MessageRef, short: Any, record: Record, estimator: Estimator) -> MessageRef:
    if short is None or short.at is not None:
        return ref
    shorter = reference(record, short.body, ref.number, estimator, shortened=True)
    return bared(shorter, estimator) if ref.bare else shorter


def _prepared(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    shown = None
    if state.layout.region:
        start = len(state.layout.sealed)
        tail = state.layout.tail()
        shown = (start, len(tail), layouts.digest_of(tail))
    asked = gauge.Asked(record.position, state.layout.tokens, not event.breaks, event.budget)
    state = state._replace(breaks=(), shown=shown, gauge=gauge.prepared(state.gauge, asked))
    return _read(state, gauge.called(state.gauge, event.model))


def _called(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    if event.prepared is None:
        return state  # a call that sends no view, such as a summarizer's, says nothing about it
    return _read(state, gauge.called(state.gauge, event.model))


def _reported(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    if event.prepared is None:
        return state
    called = _read(state, gauge.called(state.gauge, event.model))
    read = gauge.reported(called.gauge, event.prepared, event.prompt, event.model)
    return called._replace(gauge=read)


def with_model(state: ViewState, model: str | None) -> ViewState:
    """The view as it counts for a request to ``model``; the same where that is not known."""
    return _read(state, gauge.called(state.gauge, model))


def _read(state: ViewState, read: Gauge) -> ViewState:
    """The view under a new gauge; counted again where another family's rates hold now."""
    before, estimator = state.estimator, FAMILIES[read.family]
    if estimator == before:
        return state if read is state.gauge else state._replace(gauge=read)
    refs = [_counted(ref, estimator) for ref in state.layout.refs]
    insertions = [_counted(ref, estimator) for ref in state.layout.insertions]
    layout = layouts.build(refs, insertions)._replace(late=state.layout.late)
    low_water = layout.tokens * state.low_water // max(1, state.layout.tokens)
    read = gauge.recounted(read, layout.tokens, state.layout.tokens)
    return state._replace(layout=layout, low_water=low_water, gauge=read)


def _counted(ref: R, estimator: Estimator) -> R:
    return msgspec.structs.replace(ref, tokens=estimator.tokens(ref.facts))


def _breaks_until_now(state: ViewState) -> tuple[Break, ...]:
    """The breaks so far, and one if a round that was shown unfinished reads differently now."""
    if state.shown is None or state.breaks:
        return state.breaks
    start, length, digest = state.shown
    if layouts.digest_of(state.layout.slice(start, start + length)) == digest:
        return ()
    return ("late_result",)


def _with(breaks: tuple[Break, ...], kind: Break) -> tuple[Break, ...]:
    return breaks if kind in breaks else (*breaks, kind)


def _name(event: type[events.Event]) -> str:
    return str(event.__struct_config__.tag)


_STEPS = {
    _name(events.MessageAdded): _added,
    _name(events.MessagesSet): _set,
    _name(events.Cleared): _cleared,
    _name(events.Pinned): _pinned,
    _name(events.Unpinned): _unpinned,
    _name(events.Restored): _restored,
    _name(events.Erased): _erased,
    _name(events.PostCompact): _compacted,
    _name(events.RequestPrepared): _prepared,
    _name(events.PromptSubmit): _turn,
    _name(events.ProviderRequest): _called,
    _name(events.UsageReported): _reported,
}
