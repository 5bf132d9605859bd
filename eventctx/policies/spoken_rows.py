"""The rows of a view that hold what a person asked for: the task, and messages with demands.

They are the last to leave a view. A policy may drop such a row only where an insertion quotes its
demands word by word (``plan.Insertion.demands``); the task stays even then. What a policy drops
otherwise is put back here, and shortened by ``fit`` as far as the budget forces that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from eventctx.log.plan import Disposition, numbers_in
from eventctx.policies.policy import NewInsertion, Proposal, Visible
from eventctx.projections.view.refs import InsertionRef

_STAYS = ("kept", "shortened")


def spoken_rows(
    visible: Visible, insertions: Iterable[InsertionRef | NewInsertion]
) -> Mapping[int, str]:
    """Rows with a person's task or demands, in order, each with its reason code.

    Left out are those whose demands stand in one of ``insertions``, or were all taken back
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


def with_spoken(
    visible: Visible, proposal: Proposal, spoken: Mapping[int, str] | None = None
) -> Proposal:
    """The proposal with every spoken row that it leaves out put back, in its whole round."""
    spoken = spoken_rows(visible, inserted_by(proposal)) if spoken is None else spoken
    decided = proposal.dispositions
    missing = left_out(visible, proposal, spoken)
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
        # Nothing can be inserted behind a round that waits for results: such texts go to the start.
        behind = {ref.number for ref in visible.messages[last_open + 1 :]}
        insertions = tuple(
            [
                msgspec.structs.replace(one, before=None) if one.before in behind else one
                for one in insertions
            ]
        )
    return msgspec.structs.replace(proposal, dispositions=corrected, insertions=insertions)


def inserted_by(proposal: Proposal) -> list[InsertionRef | NewInsertion]:
    """All insertions of the view that a proposal gives."""
    return [*proposal.kept_insertions, *proposal.insertions]


def left_out(visible: Visible, proposal: Proposal, spoken: Mapping[int, str]) -> set[int]:
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
