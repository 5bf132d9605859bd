"""From the rows that a policy wants to keep to a proposal that keeps the rules.

A policy chooses the messages that matter. The functions here add what the rules demand: system
messages, pins, the latest human message, the message to be answered, the task and messages with
demands stay, and a tool round stays whole if one of its rows stays. ``keep_only`` and ``drop`` are
for authors of policies of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eventctx.errors import InvalidPlan
from eventctx.log.plan import Disposition
from eventctx.policies.fit import latest_human, to_answer
from eventctx.policies.policy import Proposal, Visible
from eventctx.policies.spoken_rows import spoken_rows
from eventctx.projections.view.refs import InsertionRef, MessageRef

Decisions = dict[int, tuple[Disposition, str]]
"""A disposition and a reason code by message number."""


def keep_only(visible: Visible, numbers: Iterable[int], reason: str = "custom") -> Proposal:
    """Keep these messages and those that the rules protect; everything else leaves the view.

    ``reason`` is recorded for the messages that were named and for those that leave; insertions
    stay. Raises InvalidPlan for a number that is not in view.
    """
    rows = _rows_of(visible, numbers)
    decided = decisions(visible, dict.fromkeys(rows, reason), gone=reason)
    return Proposal(decided, kept_insertions=tuple(visible.insertions))


def drop(visible: Visible, numbers: Iterable[int], reason: str = "custom") -> Proposal:
    """Take these messages out of the view, each with its whole round, as far as the rules allow.

    ``reason`` is recorded for what leaves; insertions stay. Raises InvalidPlan for a number that is
    not in view.
    """
    rows = set(_rows_of(visible, numbers))
    wanted: dict[int, str] = {}
    for group in visible.groups:
        if rows.isdisjoint(group.rows):
            wanted.update(dict.fromkeys(group.rows, "fits"))
    return Proposal(
        decisions(visible, wanted, gone=reason), kept_insertions=tuple(visible.insertions)
    )


def decisions(
    visible: Visible,
    wanted: Mapping[int, str],
    gone: str = "older",
    insertions: Sequence[InsertionRef] | None = None,
) -> Decisions:
    """The disposition and reason of every message when the rows ``wanted`` stay.

    ``wanted`` maps a row to its reason code; ``gone`` is the reason code of messages that leave.
    ``insertions`` are those that stay, by default all: what a person asked for may leave where one
    of them quotes it.
    """
    messages = visible.messages
    human = latest_human(messages)
    pinned = {row for row, ref in enumerate(messages) if ref.number in visible.pins}
    last = to_answer(messages, visible.groups)
    kept = visible.insertions if insertions is None else insertions
    spoken = spoken_rows(visible, kept)
    staying = {*wanted, *spoken, *pinned, *[row for row in (human, last) if row is not None]}
    decided: Decisions = {}
    for group in visible.groups:
        stays = not staying.isdisjoint(group.rows)
        for row in group.rows:
            ref = messages[row]
            if ref.facts.kind == "system":
                decided[ref.number] = ("kept", "system")
            elif not stays:
                decided[ref.number] = ("dropped", gone)
            else:
                reason = wanted.get(row) or spoken.get(row, "same_round")
                reason = "latest" if row == last else reason
                reason = "latest_human" if row == human else reason
                reason = "pinned" if row in pinned else reason
                decided[ref.number] = ("shortened" if ref.shortened else "kept", reason)
    return decided


def conversation(messages: Sequence[MessageRef]) -> list[int]:
    """The rows that are not system messages."""
    return [row for row, ref in enumerate(messages) if ref.facts.kind != "system"]


def _rows_of(visible: Visible, numbers: Iterable[int]) -> list[int]:
    rows = {ref.number: row for row, ref in enumerate(visible.messages)}
    wanted = set(numbers)
    unknown = wanted - rows.keys()
    if unknown:
        raise InvalidPlan(
            "a policy speaks of messages in view", tuple(sorted(unknown)), "they are not in view"
        )
    return [rows[number] for number in wanted]
