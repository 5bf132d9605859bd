"""From the rows that a policy wants to keep to a proposal that keeps the rules.

A policy chooses the messages that matter. The functions here add what the rules demand: system
messages, pins, the latest human message, the message to be answered, the thinking of an open tool
loop, the task and messages with demands stay, and a tool round stays whole if one of its rows
stays. The task and demands (``spoken_rows``) are the last to leave a view: a policy may drop such a
row only where an insertion quotes its demands word by word (``plan.Insertion.demands``), and the
task not even then. Any other such row that it drops is put back, and ``fit`` shortens it as far as
the budget forces that. ``keep_only`` and ``drop`` are for authors of policies of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventctx.errors import InvalidPlan
from eventctx.log.plan import Disposition, numbers_in
from eventctx.policies.policy import NewInsertion, Proposal, Visible
from eventctx.projections.view.refs import InsertionRef

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
    leaving = visible.groups_with(_rows_of(visible, numbers))
    wanted = dict.fromkeys(
        [row for row, place in enumerate(visible.group_at) if place not in leaving], "fits"
    )
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
    human, last, pinned = visible.latest_human, visible.to_answer, visible.pinned
    kept = visible.insertions if insertions is None else insertions
    spoken = spoken_rows(visible, kept)
    staying = {*wanted, *spoken, *pinned, *visible.loop_thinking}
    staying.update([row for row in (human, last) if row is not None])
    left_out: tuple[Disposition, str] = ("dropped", gone)
    decided: Decisions = {}
    here = visible.groups_with(staying)
    for place, group in enumerate(visible.groups):
        stays = place in here
        for row in group.rows:
            ref = messages[row]
            if ref.facts.kind == "system":
                decided[ref.number] = ("kept", "system")
            elif not stays:
                decided[ref.number] = left_out
            else:
                reason = wanted.get(row) or spoken.get(row, "same_round")
                reason = "latest" if row == last else reason
                reason = "latest_human" if row == human else reason
                reason = "pinned" if row in pinned else reason
                decided[ref.number] = ("shortened" if ref.shortened else "kept", reason)
    return decided


def _rows_of(visible: Visible, numbers: Iterable[int]) -> list[int]:
    rows = visible.row_of
    wanted = set(numbers)
    unknown = wanted - rows.keys()
    if unknown:
        raise InvalidPlan(
            "a policy speaks of messages in view", tuple(sorted(unknown)), "they are not in view"
        )
    return [rows[number] for number in wanted]


# -- the task, and messages with demands ---------------------------------------------------------

_STAYS = ("kept", "shortened")


def spoken_rows(
    visible: Visible, insertions: Iterable[InsertionRef | NewInsertion]
) -> Mapping[int, str]:
    """Rows with a person's task or demands, in order, each with its reason code.

    Left out are those whose demands are in one of ``insertions``, or were all taken back
    (``Visible.asked_for``).
    """
    asked = visible.asked_for
    quoted = numbers_in([run for one in insertions for run in one.demands])
    if not quoted:
        return asked
    messages = visible.messages
    return {
        row: reason
        for row, reason in asked.items()
        if reason == "task" or messages[row].number not in quoted
    }


def put_back_spoken(
    visible: Visible, proposal: Proposal, spoken: Mapping[int, str] | None = None
) -> Proposal:
    """The proposal with every spoken row that it leaves out put back, in its whole round."""
    spoken = spoken_rows(visible, all_insertions(proposal)) if spoken is None else spoken
    decided = proposal.dispositions
    missing = missing_spoken(visible, proposal, spoken)
    if not missing:
        return proposal
    corrected: dict[int, tuple[Disposition, str]] = dict(decided)
    last_open: int | None = None
    for place in sorted(visible.groups_with(missing)):
        group = visible.groups[place]
        for row in group.rows:
            ref = visible.messages[row]
            is_short = ref.shortened or ref.number in proposal.limits
            reason = spoken.get(row, "same_round")
            corrected[ref.number] = ("shortened" if is_short else "kept", reason)
        last_open = group.rows[0] if group.pending else last_open
    insertions = proposal.insertions
    if last_open is not None:
        # Nothing can be inserted after a round that waits for results: such texts go to the start.
        behind = {ref.number for ref in visible.messages[last_open + 1 :]}
        insertions = tuple(
            [
                msgspec.structs.replace(one, before=None) if one.before in behind else one
                for one in insertions
            ]
        )
    return msgspec.structs.replace(proposal, dispositions=corrected, insertions=insertions)


def all_insertions(proposal: Proposal) -> list[InsertionRef | NewInsertion]:
    """All insertions of the view that a proposal gives."""
    return [*proposal.kept_insertions, *proposal.insertions]


def missing_spoken(visible: Visible, proposal: Proposal, spoken: Mapping[int, str]) -> set[int]:
    """Those of the ``spoken`` rows that leave the view.

    A message with demands may be merged into the same message, said again.
    """
    messages, decided = visible.messages, proposal.dispositions
    missing = {row for row in spoken if decided[messages[row].number][0] not in _STAYS}
    if any(decided[messages[row].number][0] == "merged" for row in missing):
        staying = [ref for ref in messages if decided[ref.number][0] in _STAYS]
        said = {(ref.digest, ref.facts) for ref in staying}
        missing -= {
            row
            for row in missing
            if spoken[row] != "task"
            and decided[messages[row].number][0] == "merged"
            and (messages[row].digest, messages[row].facts) in said
        }
    return missing
