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
    for number, what, cause, code, into in changes:
        place = -1
        if code:
            reason = ChangeReason(code, describe_reason(code, origins[number].ref.facts))
            if reason not in known:
                known[reason] = len(reasons)
                reasons = reasons.append(reason)
            place = known[reason]
        run = ChangedRun(cause.position, number, number, what, place, -1 if into is None else into)
        if found and _joins(found[-1], run):
            found[-1] = found[-1]._replace(last=number)
        else:
            found.append(run)
    return RunsState(state.runs.extend(found), reasons)


def _joins(run: ChangedRun, one: ChangedRun) -> bool:
    return (
        one.first == run.last + 1
        and one.what == run.what
        and one.reason == run.reason
        and one.into == run.into
        and (one.into == -1 or one.what == "summarised")
    )
