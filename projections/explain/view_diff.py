"""The difference of two requests of one session: messages that entered, left or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from eventctx.projections.explain.why import Reason, ViewHistory, make_reason
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import InsertionRef, MessageRef

Kind = Literal[
    "entered",
    "restored",
    "summarised",
    "dropped",
    "merged",
    "omitted",
    "replaced",
    "set",
    "cleared",
    "shortened",
    "thinking_left_out",
    "results_left_out",
]
"""The change of a message from the earlier view to the later one.

``entered``: added in between. ``restored``: came back, or is whole again. ``omitted``: a result
whose call is gone. ``replaced``: the host's system prompt takes its place. ``results_left_out``:
results in it no longer answer a call in view.
"""

GROUPS: Final = ("system", "human", "user", "assistant", "result", "other", "inserted", "made_up")
"""Kinds of message (``messages.Kind``), insertions, and ``made_up``: synthetic results, opening."""


class Difference(NamedTuple):
    """The change of message ``number`` and its reason; ``origin`` is the message as added."""

    number: int
    kind: Kind
    ruling: Reason | None
    origin: MessageRef


class Extra(NamedTuple):
    """An entry that is no message: an insertion, a synthetic result, or an opening.

    ``ref`` is the insertion, the message with the call that got no result, or None.
    """

    kind: str
    ref: MessageRef | InsertionRef | None
    call_id: str


class Compared(NamedTuple):
    """The differences of two views.

    ``differences`` are by number; ``came`` and ``went`` are extras in view order; ``passed`` counts
    the messages that were added in between and are not in the later view.
    """

    differences: tuple[Difference, ...]
    came: tuple[Extra, ...]
    went: tuple[Extra, ...]
    passed: int


def compare(before: ViewHistory, after: ViewHistory) -> Compared:
    """The differences between ``before`` and ``after``, a later state of the same log."""
    found = [*_find_left(before, after), *_find_new(before, after), *_find_changed(before, after)]
    earlier, later = _extras(before), _extras(after)
    first, following = len(before.state.origins), len(after.state.origins)
    return Compared(
        tuple(sorted(found, key=lambda one: (one.number, one.kind))),
        tuple([extra for key, extra in later.items() if key not in earlier]),
        tuple([extra for key, extra in earlier.items() if key not in later]),
        sum(number not in after.shown for number in range(first, following)),
    )


def token_groups(history: ViewHistory, tokens: int) -> dict[str, int]:
    """Tokens of a request's messages by group; the groups add up to ``tokens``, the sum of all.

    Each group has the share of ``tokens`` that it has of the estimator's own count.
    """
    counted = dict.fromkeys(GROUPS, 0)
    for entry in history.entries:
        counted[_group(entry)] += entry.tokens
    whole = sum(counted.values())
    groups: dict[str, int] = {}
    before = up_to = 0
    for name, count in counted.items():
        up_to += count
        share = tokens * up_to // whole if whole else 0
        if count:
            groups[name] = share - before
        before = share
    return groups


def _find_left(before: ViewHistory, after: ViewHistory) -> Iterator[Difference]:
    for number in before.shown.keys() - after.shown.keys():
        why = after.why(number)
        kind: Kind = why.standing.value  # type: ignore[assignment]  # one that left is none of the others
        yield Difference(number, kind, why.ruling, after.state.origins[number].ref)


def _find_new(before: ViewHistory, after: ViewHistory) -> Iterator[Difference]:
    known = len(before.state.origins)
    for number in after.shown.keys() - before.shown.keys():
        origin = after.state.origins[number].ref
        if number >= known:
            yield Difference(number, "entered", None, origin)
        else:
            cause = after.why(number).restored
            ruling = None if cause is None else make_reason(cause, "restored", "restored")
            yield Difference(number, "restored", ruling, origin)


def _find_changed(before: ViewHistory, after: ViewHistory) -> Iterator[Difference]:
    for number in after.shown.keys() & before.shown.keys():
        was, now = before.shown[number], after.shown[number]
        if was is now or was == now:
            continue
        old, new = was.ref, now.ref
        assert isinstance(old, MessageRef)  # noqa: S101 - tells the type checker
        assert isinstance(new, MessageRef)  # noqa: S101 - tells the type checker
        why, origin = after.why(number), after.state.origins[number].ref
        if new.shortened and (old.position, old.index) != (new.position, new.index):
            yield Difference(number, "shortened", why.ruling, origin)
        elif old.shortened and not new.shortened and why.restored is not None:
            ruling = make_reason(why.restored, "restored", "restored")
            yield Difference(number, "restored", ruling, origin)
        if new.stripped and not old.stripped:
            yield Difference(number, "thinking_left_out", why.stripped, origin)
        if set(now.omit) - set(was.omit):
            yield Difference(number, "results_left_out", None, origin)


def _extras(history: ViewHistory) -> dict[tuple[object, ...], Extra]:
    """Entries that are no message, by a key that is equal for the same entry in another view."""
    found: dict[tuple[object, ...], Extra] = {}
    for entry in history.entries:
        ref = entry.ref
        if isinstance(ref, InsertionRef):
            found["insertion", ref.position, ref.index] = Extra(ref.kind, ref, "")
        elif entry.kind == "synthetic":
            assert isinstance(ref, MessageRef)  # noqa: S101 - tells the type checker
            found["synthetic", ref.number, entry.call_id] = Extra("synthetic", ref, entry.call_id)
        elif entry.kind == "opening":
            found["opening",] = Extra("opening", None, "")
    return found


def _group(entry: Entry) -> str:
    if isinstance(entry.ref, InsertionRef):
        return "inserted"
    if entry.kind != "message" or entry.ref is None:
        return "made_up"
    return entry.ref.facts.kind
