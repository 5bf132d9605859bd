"""Explains why a message is in a view or not: the answer for one number, from its history."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.log.plan import PROVIDER, TAKEN_BACK, find
from eventctx.messages.facts import Facts
from eventctx.messages.tool_rounds import answers_to
from eventctx.projections.explain.changes import (
    Cause,
    Change,
    ChangesState,
    in_transcript,
    with_figures,
)
from eventctx.projections.figures import Figures
from eventctx.projections.presence import Presence, describe_reason
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import InsertionRef, MessageRef

SIZES: Final = ("budget", "threshold", "target")
"""The sizes that a compaction works with, in tokens; they are recorded with its end."""

_RECENT: Final = (
    "keep_recent",
    "keep_turns",
    "max_messages",
    "protected_recent",
    "keep_recent_share",
    "fresh_tail_count",
)
_OLD: Final = ("protected_recent", "protected_tool_results", "target")

GOVERNING: Final[dict[str, tuple[str, ...]]] = {
    "system": (),
    "pinned": (),
    "latest_human": (),
    "recent": _RECENT,
    "same_round": _RECENT,
    "open_round": (),
    "older": _RECENT,
    "duplicate": (),
    "oversize": ("budget",),
    "budget": SIZES,
    "old_result": ("truncate_chars", *_OLD),
    "old_arguments": ("truncate_chars", *_OLD),
    "old_round": _OLD,
    "old_words": ("truncate_chars", *_OLD),
    "protected": ("protected_recent", "protected_tool_results", "keep_recent"),
    "task": (),
    "fits": ("budget", "target"),
    "restored": (),
    "imported": (),
    PROVIDER: (),
    "provider_summary": (),
    "provider_kept": (),
    "foreign_summary": (),
    TAKEN_BACK: (),
}
"""The settings that govern each reason code, for any policy that has them. A code that is not here
(a score, a summary, a custom one) is a policy's own, and all settings of the policy govern it."""


class Reason(msgspec.Struct, frozen=True):
    """The reason for a message's presence: the record that caused it, the rule and its settings.

    ``disposition`` is a plan's, or the kind of change. ``reason`` is a plan's code ("" if no plan
    covers the message) and ``rule`` the text of that code. ``settings`` are those that govern the
    rule, with their values at the time; the own settings of a fallback are not recorded.
    """

    cause: Cause
    disposition: str
    reason: str = ""
    rule: str = ""
    settings: dict[str, Any] = {}


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The presence (``standing``) of message ``number`` in a view, and the reasons for it.

    - ``compactions``: how many were applied to the view.
    - ``added``: the record that added it.
    - ``ruling``: the reason why it was taken out or shortened; None if it is as it was added, or
      was restored whole.
    - ``stays``: for a message in view, the reason in the plan in force, ``planned``; None if there
      is no plan, or the message was added or restored after it.
    - ``stripped``: the reason why its thinking is left out.
    - ``restored``: its last return to the view; ``pinned_by``: the pin in effect; ``erased``: the
      erasure of its contents.
    - ``into``: for a merged message, the one that replaces it, and for one that the provider
      summarised, the one that holds its summary; ``into_in_view``: whether that one is still in
      view.
    - ``caller``: the message with the call that an omitted result answers, if there is one.
    - ``results_left_out``: ids of results in the message that answer no call in view.
    - ``insertions``: insertions in view that stand for it.
    - ``origin``, ``shown``: its references as it was added, and as it is in view.
    """

    number: int
    standing: Presence
    compactions: int
    added: Cause | None = None
    ruling: Reason | None = None
    stays: Reason | None = None
    planned: Cause | None = None
    stripped: Reason | None = None
    restored: Cause | None = None
    pinned: bool = False
    pinned_by: Cause | None = None
    erased: Cause | None = None
    into: int | None = None
    into_in_view: bool = False
    caller: int | None = None
    results_left_out: tuple[str, ...] = ()
    insertions: tuple[InsertionRef, ...] = ()
    origin: MessageRef | None = None
    shown: MessageRef | None = None

    @property
    def in_view(self) -> bool:
        """Whether the view shows it, whole or shortened."""
        return self.standing.in_view


_FEW: Final = 8
"""Messages for which one pass over all changes each is cheaper than an index of all."""


class ViewHistory:
    """One view, indexed for explanations: its entries, and the changes to every message.

    ``figures`` are those of the whole session, for the sizes of its compactions.
    """

    def __init__(self, state: ChangesState, figures: Figures | None = None) -> None:
        if figures is not None and state.planned is not None:
            state = replace(state, planned=with_figures(state.planned, figures))
        self.state = state
        self.entries: list[Entry] = state.view.layout.entries()
        self.shown: dict[int, Entry] = {
            entry.ref.number: entry
            for entry in self.entries
            if entry.kind == "message" and isinstance(entry.ref, MessageRef)
        }
        self._visible = {ref.number: ref for ref in state.view.layout.refs}
        self._figures = figures
        self._asked = 0

    @cached_property
    def _by_number(self) -> dict[int, list[Change]]:
        found: dict[int, list[Change]] = {}
        for change in self.state.changes:
            found.setdefault(change.number, []).append(change)
        return found

    def _changes(self, number: int) -> list[Change]:
        """The changes to one message, with the figures of the compactions that caused them."""
        self._asked += 1
        if self._asked > _FEW:
            found = self._by_number.get(number, [])
        else:
            found = self.state.changes.numbered(number)
        known = self._figures
        if known is None:
            return found
        return [one._replace(cause=with_figures(one.cause, known)) for one in found]

    @cached_property
    def _turns(self) -> dict[str, int]:
        """The numbers of turns by id; of an id that was used again, that of the last one."""
        return {one.turn_id: one.number for one in self.state.time.began}

    @cached_property
    def _callers(self) -> dict[str, list[int]]:
        """Message numbers by the ids of the results that answer a call in them."""
        found: dict[str, list[int]] = {}
        for number, origin in enumerate(self.state.origins):
            for call_id in origin.ref.facts.calls:
                for answer in answers_to(call_id):
                    found.setdefault(answer, []).append(number)
        return found

    def why(self, number: int) -> Why:
        """The answer for one message; ``number`` is from 0."""
        state = self.state
        if number >= len(state.origins):
            return Why(
                number=number, standing=Presence.NOT_ADDED, compactions=state.view.compactions
            )
        changes = self._changes(number)
        ref = self._visible.get(number)
        entry = self.shown.get(number)
        restored = _last(changes, "restored")
        known = Why(
            number=number,
            standing=Presence.WHOLE,
            compactions=state.view.compactions,
            added=self.added(number),
            planned=state.planned,
            restored=None if restored is None else restored.cause,
            pinned=number in state.view.pins,
            pinned_by=_pin(changes) if number in state.view.pins else None,
            erased=_cause(_last(changes, "erased")),
            origin=state.origins[number].ref,
            shown=ref if entry is not None else None,
        )
        if entry is not None and ref is not None:
            return self._why_in_view(known, ref, entry, changes)
        if ref is not None and ref.replaced:
            change = _last(changes, "replaced")
            ruling = None if change is None else _reason_of_change(change, ref.facts)
            return msgspec.structs.replace(known, standing=Presence.REPLACED, ruling=ruling)
        if ref is not None:
            return self._why_omitted(known, ref)
        return self._why_out(known, changes)

    def added(self, number: int) -> Cause:
        """The record that added a message."""
        ref, kind, time, turn_id, iteration = self.state.origins[number]
        turn = None if turn_id is None else self._turns.get(turn_id)
        return Cause(ref.position, kind, time, turn, iteration)

    def _why_in_view(self, why: Why, ref: MessageRef, entry: Entry, changes: list[Change]) -> Why:
        shortened = _last(changes, "shortened") if ref.shortened else None
        stripped = _last(changes, "thinking_left_out") if ref.stripped else None
        return msgspec.structs.replace(
            why,
            standing=Presence.SHORTENED if ref.shortened else Presence.WHOLE,
            ruling=None if shortened is None else _reason_of_change(shortened, ref.facts),
            stays=self._why_it_stays(why),
            stripped=None if stripped is None else _reason_of_change(stripped, ref.facts),
            results_left_out=entry.omit,
        )

    def _why_it_stays(self, why: Why) -> Reason | None:
        """The reason in the plan in force for a message that is in view."""
        plan, cause = self.state.plan, self.state.planned
        if plan is None or cause is None or why.number > plan.through:
            return None
        if why.restored is not None and why.restored.position > cause.position:
            return None  # the plan was made before the message came back
        run = find(plan.runs, why.number)
        if run is None:
            return Reason(cause, "kept")
        facts = None if why.origin is None else why.origin.facts
        return make_reason(cause, run.disposition, run.reason, facts)

    def _why_omitted(self, why: Why, ref: MessageRef) -> Why:
        callers = [
            number
            for call_id in ref.facts.results
            for number in self._callers.get(call_id, ())
            if number < ref.number
        ]
        caller = max(callers, default=None)
        ruling = None
        if caller is not None and caller not in self.shown:
            ruling = self.why(caller).ruling
        return msgspec.structs.replace(why, standing=Presence.OMITTED, caller=caller, ruling=ruling)

    def _why_out(self, why: Why, changes: list[Change]) -> Why:
        left = "set", "cleared", "summarised", "dropped", "merged"
        change = next(one for one in reversed(changes) if one.what in left)
        return msgspec.structs.replace(
            why,
            standing=Presence(change.what),
            ruling=_reason_of_change(change, None if why.origin is None else why.origin.facts),
            into=change.into,
            into_in_view=change.into in self.shown,
            insertions=self._insertions_for(why.number),
        )

    def _insertions_for(self, number: int) -> tuple[InsertionRef, ...]:
        """Insertions in view that stand for a message; none once it left the transcript."""
        if not in_transcript(self.state, number):
            return ()
        return tuple(
            [
                one
                for one in self.state.view.layout.insertions
                if any(first <= number <= last for first, last in one.stands_for)
            ]
        )


def make_reason(cause: Cause, disposition: str, reason: str, facts: Facts | None = None) -> Reason:
    """The reason for a message's presence, with the rule and the settings that govern it.

    With the ``facts`` of the message the rule is describe_reason for its kind.
    """
    rule = describe_reason(reason) if facts is None else describe_reason(reason, facts)
    return Reason(cause, disposition, reason, rule, _settings(cause, reason))


def _settings(cause: Cause, reason: str) -> dict[str, Any]:
    """The settings that govern a reason code in one compaction, with their values."""
    compaction = cause.compaction
    if compaction is None or not reason:
        return {}
    # If a fallback decided, the recorded settings are those of the policy that could not.
    own = compaction.settings if compaction.fallback is None else {}
    known = {**own, **{name: getattr(compaction, name) for name in SIZES}}
    names = GOVERNING.get(reason, tuple(known))
    return {name: known[name] for name in names if known.get(name) is not None}


def _reason_of_change(change: Change, facts: Facts | None) -> Reason:
    return make_reason(change.cause, change.what, change.reason, facts)


def _last(changes: Sequence[Change], what: str) -> Change | None:
    return next((one for one in reversed(changes) if one.what == what), None)


def _cause(change: Change | None) -> Cause | None:
    return None if change is None else change.cause


def _pin(changes: Sequence[Change]) -> Cause | None:
    """The pin in effect: the first one since the message was last not pinned; None if none is."""
    held: Cause | None = None
    for change in changes:
        if change.what == "pinned" and held is None:
            held = change.cause
        elif change.what in ("unpinned", "set", "cleared"):
            held = None
    return held


class LeftOut(NamedTuple):
    """Messages of the transcript that a view leaves out or shortens for the same reason.

    ``disposition`` is a plan's, ``omitted`` for results that answer no call in view, or
    ``replaced`` for system messages whose place the host's own prompt takes. ``runs`` are pairs
    ``(first, last)`` of numbers; numbers inside a run that are no longer in the transcript do not
    end it. ``rule`` words the reason, true of all of them.
    """

    disposition: str
    reason: str
    runs: tuple[tuple[int, int], ...]
    rule: str = ""


def left_out(history: ViewHistory) -> tuple[LeftOut, ...]:
    """The transcript's messages that a view does not show whole, by disposition and reason."""
    runs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    rules: dict[tuple[str, str], set[str]] = {}
    last: tuple[str, str] | None = None
    for number in range(len(history.state.origins)):
        why = history.why(number)
        if why.standing in (Presence.SET, Presence.CLEARED):
            continue
        key = (why.standing.value, "" if why.ruling is None else why.ruling.reason)
        if why.standing is Presence.WHOLE:
            last = key
            continue
        own = runs.setdefault(key, [])
        rules.setdefault(key, set()).add("" if why.ruling is None else why.ruling.rule)
        if own and key == last:
            own[-1] = (own[-1][0], number)
        else:
            own.append((number, number))
        last = key
    return tuple(
        [LeftOut(*key, tuple(own), _joint_rule(key[1], rules[key])) for key, own in runs.items()]
    )


def _joint_rule(reason: str, rules: set[str]) -> str:
    return next(iter(rules)) if len(rules) == 1 else describe_reason(reason)
