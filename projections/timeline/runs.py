"""The changes to messages as runs: neighbours that one record changed alike are one row.

A compaction takes out hundreds of messages by a few rules, so a session's changes are some hundred
rows, which a page draws as rectangles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eventctx.projections.explain.changes import Change, Origin, What
from eventctx.projections.presence import describe_reason
from eventctx.projections.view.series import Series


class ChangedRun(NamedTuple):
    """Messages ``first`` to ``last``, changed alike by the record at ``position``.

    ``reason`` is a place among the reasons of the session, -1 without one. ``into`` is the message
    that replaces a merged one, or that holds the provider's summary; -1 where there is none.
    """

    position: int
    first: int
    last: int
    what: What
    reason: int
    into: int


class ChangeReason(NamedTuple):
    """A plan's reason code, and its wording for a kind of message."""

    code: str
    rule: str


class RunsState(NamedTuple):
    """All runs so far, and the reasons in the order in which they first occurred."""

    runs: Series[ChangedRun]
    reasons: Series[ChangeReason]


def initial() -> RunsState:
    """No changes."""
    return RunsState(Series(), Series())


def add_changes(state: RunsState, changes: Iterable[Change], origins: Series[Origin]) -> RunsState:
    """The runs after the changes that one record made."""
    reasons = state.reasons
    known = {reason: place for place, reason in enumerate(reasons)}
    found: list[ChangedRun] = []
    first = last = -2
    alike: tuple[int, What, int, int] | None = None
    for number, what, cause, code, into in changes:
        place = -1
        if code:
            reason = ChangeReason(code, describe_reason(code, origins[number].ref.facts))
            if reason not in known:
                known[reason] = len(reasons)
                reasons = reasons.append(reason)
            place = known[reason]
        now = (cause.position, what, place, -1 if into is None else into)
        if number != last + 1 or now != alike or not _may_join(what, into):
            if alike is not None:
                found.append(_run(first, last, alike))
            first, alike = number, now
        last = number
    if alike is not None:
        found.append(_run(first, last, alike))
    return RunsState(state.runs.extend(found), reasons)


def _run(first: int, last: int, alike: tuple[int, What, int, int]) -> ChangedRun:
    position, what, reason, into = alike
    return ChangedRun(position, first, last, what, reason, into)


def _may_join(what: What, into: int | None) -> bool:
    """Whether a message may be in one run with others: each merged one has its own successor."""
    return into is None or into == -1 or what == "summarised"
