"""Applies a plan to a view: takes messages out, shortens, inserts, and strips bound thinking."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.errors import DecodeError
from eventctx.log.plan import (
    Disposition,
    Insertion,
    Plan,
    Run,
    finder,
    joined,
    numbers_in,
    runs_by_number,
)
from eventctx.log.record import Body, Record
from eventctx.messages.facts import as_observation, decode_facts, without_bound
from eventctx.messages.thinking import Generation
from eventctx.messages.tokens import Estimator
from eventctx.projections.view import layout as layouts
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.layout import Layout
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.state import ViewState, after_compaction

_HIDDEN = ("summarised", "dropped", "merged")


def _body(record: Record, index: int) -> Body:
    """The body at ``index``. Raises DecodeError for a record that lacks it."""
    try:
        return record.bodies[index]
    except IndexError:
        raise DecodeError(
            f"stream {record.stream!r}, position {record.position}: expected a {record.type} with "
            f"a body {index}, found {len(record.bodies)} bodies"
        ) from None


def reference(
    record: Record, index: int, number: int, estimator: Estimator, shortened: bool = False
) -> MessageRef:
    """The reference of message ``number``, whose body is body ``index`` of ``record``."""
    body = _body(record, index)
    facts = decode_facts(body.facts)
    return MessageRef(
        number, record.position, index, body.digest, facts, estimator.tokens(facts), shortened
    )


def with_stripped(state: ViewState, stripped: tuple[tuple[int, int], ...]) -> ViewState:
    """The view after a plan that only strips the thinking of messages in the runs ``stripped``."""
    refs = strip_thinking(state.layout.refs, stripped, state.estimator)
    layout = layouts.build(refs, state.layout.insertions, state.layout.ends)
    return after_compaction(replace(state, layout=layout))


def strip_thinking(
    refs: Iterable[MessageRef], stripped: tuple[tuple[int, int], ...], estimator: Estimator
) -> list[MessageRef]:
    """The references, those in the runs ``stripped`` without their bound thinking."""
    numbers = numbers_in(stripped)
    return [without_thinking(ref, estimator) if ref.number in numbers else ref for ref in refs]


def without_thinking(ref: MessageRef, estimator: Estimator) -> MessageRef:
    """The reference of the same message without its bound thinking blocks."""
    if not ref.facts.bound:
        return ref
    facts = without_bound(ref.facts)
    return msgspec.structs.replace(ref, facts=facts, tokens=estimator.tokens(facts), stripped=True)


def mark_replaced(
    refs: Iterable[MessageRef], replaced: tuple[tuple[int, int], ...]
) -> list[MessageRef]:
    """The references, with those in the runs ``replaced``, and no others, marked as replaced."""
    numbers = numbers_in(replaced)
    return [
        ref
        if ref.replaced == (ref.number in numbers)
        else msgspec.structs.replace(ref, replaced=not ref.replaced)
        for ref in refs
    ]


def refused_thinking(
    before: Layout, after: Layout, generation: Generation
) -> tuple[tuple[int, int], ...]:
    """Runs of messages whose thinking a model refuses after the first entry that differs.

    ``generation`` is that of the model that will read ``after``.
    """
    if generation in _READ_ANYWHERE:
        return ()
    old, new = before.entries(), after.entries()
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    if _is_swapped(old[same:], new[same:]):
        return ()
    return _bound_in(new[same:], generation)


def _is_swapped(old: list[Entry], new: list[Entry]) -> bool:
    """Whether a provider's own summary, and nothing else, takes the place of a beginning.

    The API accepts the thinking in what follows then, if that is unchanged and the speaker changes
    at the cut: else it takes the first message that is kept for a part of the last one before it.
    Source: Anthropic's "Compaction and preserved thinking".
    """
    first, kept = new[0].ref if new else None, new[1:]
    if not isinstance(first, InsertionRef) or not first.facts.compacts or not kept:
        return False
    cut = len(old) - len(kept)
    return cut > 0 and old[cut:] == kept and _is_answer(old[cut - 1]) != _is_answer(kept[0])


def _is_answer(entry: Entry) -> bool:
    spoken = entry.ref is not None and entry.kind != "synthetic"
    return spoken and entry.ref is not None and entry.ref.facts.kind == "assistant"


_READ_ANYWHERE: Final = ("manual", "adaptive")
"""The generations that take thinking back whatever has changed before it."""


def foreign_thinking(layout: Layout, generation: Generation) -> tuple[tuple[int, int], ...]:
    """Runs of all messages with bound thinking, for a model that reads none of it.

    The open tool loop keeps that of its newest answer, unless the model checks what is before it.
    """
    return _bound_in(layout.entries(), generation)


def _bound_in(entries: list[Entry], generation: Generation) -> tuple[tuple[int, int], ...]:
    """Runs of the messages with bound thinking, but for the answer that a tool loop is at.

    That one is asked for by models of manual thinking, so only one that is known to refuse it has
    it left out.
    """
    at = _open_answer(entries) if generation != "preserved" else frozenset()
    numbers = sorted(
        entry.ref.number
        for entry in entries
        if entry.kind == "message"
        and isinstance(entry.ref, MessageRef)
        and entry.ref.facts.bound
        and entry.ref.number not in at
    )
    runs = joined([Run(number, number, "kept", "") for number in numbers])
    return tuple([(run.first, run.last) for run in runs])


def _open_answer(entries: list[Entry]) -> frozenset[int]:
    """The messages of the last answer, if it has calls: their results are sent next.

    Where none of them has thinking, the first message of its loop that has some, too.
    """
    own = [
        entry.ref
        for entry in reversed(entries)
        if entry.kind == "message" and isinstance(entry.ref, MessageRef)
    ]
    is_answer = [ref.facts.kind == "assistant" for ref in own]
    begin = next((place for place, answer in enumerate(is_answer) if answer), len(own))
    end = next((place for place in range(begin, len(own)) if not is_answer[place]), len(own))
    answer = own[begin:end]
    if not any(ref.facts.calls for ref in answer):
        return frozenset()
    if not any(ref.facts.bound for ref in answer):
        loop = takewhile(lambda ref: not ref.facts.human or ref.facts.results, own[end:])
        answer += [ref for ref in loop if ref.facts.bound][-1:]
    return frozenset([ref.number for ref in answer])


def in_open_loop(layout: Layout) -> bool:
    """Whether the view ends in a tool loop that holds signed thinking."""
    waits = False
    for ref in reversed(layout.refs):
        if ref.facts.human:
            return False
        if ref.facts.kind == "assistant":
            waits = waits or bool(ref.facts.calls)
            if not waits:
                return False
            if ref.facts.bound:
                return True
    return False


def refused_thinking_after(
    layout: Layout, places: Collection[tuple[int, int]], generation: Generation
) -> tuple[tuple[int, int], ...]:
    """As ``refused_thinking``, after the first message whose contents at ``places`` go."""
    if generation in _READ_ANYWHERE:
        return ()
    entries = layout.entries()
    first = next(
        (
            place
            for place, entry in enumerate(entries)
            if entry.ref is not None and (entry.ref.position, entry.ref.index) in places
        ),
        len(entries),
    )
    return _bound_in(entries[first + 1 :], generation)


def apply_plan(state: ViewState, plan: Plan, record: Record) -> ViewState:
    """The view under ``plan``, which ``record`` carries; messages out of view stay out of view."""
    texts = {short.number: short for short in plan.shortened}
    refs: list[MessageRef] = []
    leaving: dict[int, tuple[Disposition, str]] = {}
    covering = finder(plan.runs)
    first, last = 0, -1
    disposition: Disposition = "kept"
    left = (disposition, "")
    for ref in state.layout.refs:
        number = ref.number
        if not first <= number <= last:
            run = covering(number)
            first, last, disposition = (
                (number, number, "kept") if run is None else (run.first, run.last, run.disposition)
            )
            left = (disposition, "")
        if disposition == "kept":
            refs.append(ref)
        elif disposition == "shortened":
            refs.append(_shorten(ref, texts.get(number), record, state.estimator))
        else:
            leaving[number] = left
    if plan.unbound:
        refs = strip_thinking(refs, plan.unbound, state.estimator)
    hidden: dict[str, int] = dict(zip(_HIDDEN, state.hidden, strict=True))
    gone = runs_by_number(leaving)
    for run in gone:
        hidden[run.disposition] += run.last - run.first + 1
    prompts = [one for one in state.layout.insertions if one.kind == "system_prompt"]
    insertions = [*prompts, *insertion_refs(plan.insertions, state, record)]
    return replace(
        state,
        layout=layouts.build(refs, insertions, state.layout.ends),
        gone=joined([*state.gone, *gone]) if gone else state.gone,
        plan_position=record.position,
        hidden=(hidden["summarised"], hidden["dropped"], hidden["merged"]),
    )


def with_insertions(
    state: ViewState, insertions: tuple[Insertion, ...], record: Record
) -> ViewState:
    """The view of one request with insertions of its own, which ``record`` carries."""
    if not insertions:
        return state
    added = insertion_refs(insertions, state, record)
    together = [*state.layout.insertions, *added]
    layout = layouts.build(state.layout.refs, together, state.layout.ends)
    return replace(state, layout=layout)


def insertion_refs(
    insertions: Sequence[Insertion], state: ViewState, record: Record
) -> list[InsertionRef]:
    """References of the insertions: new ones, in ``record``, and ones that it keeps in view."""
    current = {(one.position, one.index): one for one in state.layout.insertions}
    refs: list[InsertionRef] = []
    for insertion in insertions:
        ahead = insertion.before is not None and insertion.before >= state.next_number
        if insertion.at is not None and (insertion.at, insertion.body) in current:
            # The message after it may be gone, so its place is the one that the plan names.
            known = current[insertion.at, insertion.body]
            refs.append(msgspec.structs.replace(known, before=insertion.before, ahead=ahead))
            continue
        body = _body(record, insertion.body)
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
                insertion.demands,
                ahead,
            )
        )
    return refs


def _shorten(ref: MessageRef, short: Any, record: Record, estimator: Estimator) -> MessageRef:
    if short is None or short.at is not None:
        return ref
    shorter = reference(record, short.body, ref.number, estimator, shortened=True)
    # The speaker is the message's: a cut may have taken the mark that tells who it is.
    was = ref.facts
    speaker = {"kind": was.kind, "human": was.human, "action": was.action}
    if ref.facts.observation:
        facts = as_observation(shorter.facts)
        shorter = msgspec.structs.replace(shorter, facts=facts, tokens=estimator.tokens(facts))
    else:
        facts = msgspec.structs.replace(shorter.facts, **speaker)
        shorter = msgspec.structs.replace(shorter, facts=facts)
    return without_thinking(shorter, estimator) if ref.stripped else shorter


# -- the reused prefix of a request --------------------------------------------------------------
#
# The reused prefix of a request is the part that the next one begins with, which a provider's cache
# can serve again. Entries are compared by the bodies that they show and how they show them, not by
# their text. Every body has a digest of its own, so a message that was taken out and added again
# counts as another one, though the provider receives the same bytes: our share is never more than
# that of the provider.

Addresses = frozenset[tuple[int, int]]
"""Addresses ``(position, index)`` of bodies."""


class RequestPrefix(NamedTuple):
    """A prepared request: the view, and ``own``, the insertions of this request alone.

    ``view`` is None if it is not known. ``carrier`` is the record that holds the insertions'
    bodies, None if there are no insertions.
    """

    view: ViewState | None
    own: tuple[Insertion, ...] = ()
    carrier: Record | None = None

    def entries(self) -> list[Entry]:
        """All entries in order, in time proportional to the view's length."""
        assert self.view is not None  # noqa: S101 - callers have checked it
        view = self.view
        if self.carrier is not None:
            view = with_insertions(view, self.own, self.carrier)
        return view.layout.entries()


def reused_share(before: RequestPrefix, after: RequestPrefix, erased: Addresses) -> float | None:
    """The share, 0 to 1, of the estimated tokens of ``before`` with which ``after`` begins.

    Only whole messages count. ``erased`` are the bodies erased in between. None if a view is not
    known.
    """
    if before.view is None or after.view is None:
        return None
    old, new = before.entries(), after.entries()
    total = sum([entry.tokens for entry in old])
    if not total:
        return 1.0
    return sum([entry.tokens for entry in _same(old, new, erased)]) / total


def _same(old: list[Entry], new: list[Entry], erased: Addresses) -> Iterable[Entry]:
    for one, other in zip(old, new, strict=False):
        if _shown(one) != _shown(other) or _place(one) in erased:
            return
        yield one


def _shown(entry: Entry) -> tuple[object, ...]:
    """The parts of an entry that decide the message that a model sees: no counts, no places."""
    kind, ref, call_id, omit, end = entry
    if kind == "synthetic":
        known = None if end is None else (end.ended, end.digest)
        return kind, call_id, entry.dialect, known
    if ref is None:
        return (kind,)
    return ref.digest, isinstance(ref, MessageRef) and ref.stripped, omit


def _place(entry: Entry) -> tuple[int, int] | None:
    # A synthetic result shows nothing of its call's body, only an answer that was kept.
    if entry.end is not None and entry.end.position is not None:
        return entry.end.position, 0
    if entry.ref is None or entry.kind == "synthetic":
        return None
    return entry.ref.position, entry.ref.index
