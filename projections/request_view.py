"""The request view: what a model is sent. A fold that keeps only what is in view.

The state holds references of the visible messages, the plan in force, and counts of the rest, so
it stays small however long the log is; that makes it cheap to snapshot and to open. Its cost per
record is constant, and proportional to the view at a break.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eventctx import events
from eventctx.codec import decode_known
from eventctx.events import Break, Located, RequestPrepared
from eventctx.messages import decode_facts
from eventctx.plan import Insertion, Plan, find
from eventctx.projections import layout as layouts
from eventctx.projections.layout import Layout
from eventctx.record import Record
from eventctx.refs import InsertionRef, MessageRef
from eventctx.tokens import BY_KIND


class ViewState(NamedTuple):
    """The view after some record of a stream.

    ``position`` is that record's (-1: none), ``next_number`` the number of the next message,
    ``messages`` how many the transcript holds. ``breaks`` happened since the last prepared
    request; ``low_water`` is the view's size in tokens after the last compaction; ``hidden`` counts
    the messages summarised, dropped and merged; ``turns`` is the number of the last turn. ``shown``
    is what the last request showed of a round in progress: where it began, how many entries, and
    their digest; None where no round was in progress.
    """

    position: int
    next_number: int
    messages: int
    layout: Layout
    plan: Plan | None
    plan_position: int | None
    pins: frozenset[int]
    breaks: tuple[Break, ...]
    low_water: int
    compactions: int
    hidden: tuple[int, int, int]
    turns: int
    shown: tuple[int, int, str] | None


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
    return ViewState(-1, 0, 0, layouts.EMPTY, None, None, frozenset(), (), 0, 0, (0, 0, 0), 0, None)


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
    budget: int | None = None,
    model: str | None = None,
    tools_digest: str | None = None,
    floor_sent: bool = False,
    reconstructed: bool = False,
) -> RequestPrepared:
    """The event that records the view of this state as a request."""
    digest, entries, tokens = state.layout.measure()
    return RequestPrepared(
        renderer=layouts.RENDERER,
        last_message=state.next_number - 1,
        messages=entries,
        tokens=tokens,
        digest=digest,
        plan=state.plan_position,
        breaks=_breaks_until_now(state),
        budget=budget,
        model=model,
        tools_digest=tools_digest,
        floor_sent=floor_sent,
        reconstructed=reconstructed,
    )


# -- steps ---------------------------------------------------------------------------------------


def reference(record: Record, index: int, number: int, shortened: bool = False) -> MessageRef:
    """The reference of message ``number``, whose body is ``index`` of ``record``."""
    body = record.bodies[index]
    facts = decode_facts(body.facts)
    return MessageRef(
        number, record.position, index, body.digest, facts, BY_KIND.tokens(facts), shortened
    )


def _added(state: ViewState, record: Record) -> ViewState:
    number = state.next_number
    layout = layouts.append(state.layout, reference(record, 0, number))
    breaks = state.breaks
    if layout.late != state.layout.late:
        breaks = _with(breaks, "late_result")
    # Written out: the one step that runs for every message, and _replace costs 1 µs.
    return ViewState(
        record.position,
        number + 1,
        state.messages + 1,
        layout,
        state.plan,
        state.plan_position,
        state.pins,
        breaks,
        state.low_water,
        state.compactions,
        state.hidden,
        state.turns,
        state.shown,
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
                refs.append(reference(record, fresh, number))
                fresh += 1
            elif state.plan is not None and (run := find(state.plan.runs, number)) is not None:
                hidden[run.disposition] += 1
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
    for located in event.messages:
        run = None if state.plan is None else find(state.plan.runs, located.number)
        if run is None or located.number in whole:
            continue
        summarised -= run.disposition == "summarised"
        dropped -= run.disposition == "dropped"
        merged -= run.disposition == "merged"
        back[located.number] = _located(located)
    # Whole messages take the place of their shortened forms; numbers rise along the conversation
    # except behind a set, where a restored message goes before the first higher number.
    refs = [back.pop(ref.number, ref) for ref in state.layout.refs]
    for number in sorted(back):
        place = next((i for i, ref in enumerate(refs) if ref.number > number), len(refs))
        refs.insert(place, back[number])
    return state._replace(
        layout=layouts.build(refs, state.layout.insertions),
        breaks=_with(state.breaks, "restore"),
        hidden=(summarised, dropped, merged),
    )


def _located(located: Located) -> MessageRef:
    facts = decode_facts(located.facts)
    return MessageRef(
        located.number,
        located.position,
        located.index,
        located.digest,
        facts,
        BY_KIND.tokens(facts),
    )


def _erased(state: ViewState, record: Record) -> ViewState:
    return state._replace(breaks=_with(state.breaks, "erase"))


def _compacted(state: ViewState, record: Record) -> ViewState:
    event: Any = decode_known(record)
    if event.outcome != "applied" or event.plan is None:
        return state
    plan: Plan = event.plan
    return apply_plan(state, plan, record)._replace(
        breaks=_with(state.breaks, "compaction"),
        low_water=event.tokens_after,
        compactions=state.compactions + 1,
    )


def apply_plan(state: ViewState, plan: Plan, record: Record) -> ViewState:
    """The view under ``plan``, carried by ``record``; only what is visible can stay visible."""
    visible = {ref.number: ref for ref in state.layout.refs}
    texts = {short.number: short for short in plan.shortened}
    refs: list[MessageRef] = []
    hidden = list(state.hidden)
    for ref in state.layout.refs:
        run = find(plan.runs, ref.number)
        disposition = "kept" if run is None else run.disposition
        if disposition == "kept":
            refs.append(ref)
        elif disposition == "shortened":
            refs.append(_shortened(visible[ref.number], texts.get(ref.number), record))
        else:
            hidden[("summarised", "dropped", "merged").index(disposition)] += 1
    insertions = _insertion_refs(plan.insertions, state, record)
    summarised, dropped, merged = hidden
    return state._replace(
        layout=layouts.build(refs, insertions),
        plan=plan,
        plan_position=record.position,
        hidden=(summarised, dropped, merged),
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
            refs.append(current[insertion.at, insertion.body])
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
                BY_KIND.tokens(facts),
                insertion.before,
                insertion.stands_for,
                state.next_number - 1,
            )
        )
    return refs


def _shortened(ref: MessageRef, short: Any, record: Record) -> MessageRef:
    if short is None or short.at is not None:
        return ref
    return reference(record, short.body, ref.number, shortened=True)


def _prepared(state: ViewState, record: Record) -> ViewState:
    shown = None
    if state.layout.region:
        start = len(state.layout.sealed)
        tail = state.layout.tail()
        shown = (start, len(tail), layouts.digest_of(tail))
    return state._replace(breaks=(), shown=shown)


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
}
