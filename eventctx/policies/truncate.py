"""Truncation: the most recent messages stay, whole rounds and whole turns.

"Simple Truncation" of the context contract (keep N most recent messages, with tool pairs
preserved), and "recent messages (last 3-5 turns)" of the orchestrator specification.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eventctx.policies.constraints import AtLeastOne, check
from eventctx.policies.policy import Budget, PolicyState, Proposal, Visible
from eventctx.policies.proposals import decisions
from eventctx.policies.simple import at_most, check_counts
from eventctx.projections.view.refs import MessageRef


class Truncate(msgspec.Struct, frozen=True):
    """Keep system messages and the end of the conversation.

    These are the last ``keep_recent`` messages or, where ``keep_turns`` is given, the last
    ``keep_turns`` turns instead, however long they are; a turn begins at a human message. Above
    ``max_messages`` messages a compaction is due whatever their size. It leaves at most half as
    many, and more only to keep a round whole.
    """

    keep_recent: AtLeastOne = 50
    keep_turns: AtLeastOne | None = None
    max_messages: AtLeastOne | None = None
    name: str = "truncate"
    version: int = 2

    def __post_init__(self) -> None:
        check(self)
        if self.keep_turns is None:  # else nothing ties the two numbers of messages together
            check_counts(self.keep_recent, self.max_messages)

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """Dispositions of every visible message; insertions stay as they are."""
        rows = visible.conversation
        if self.keep_turns is None:
            rows = rows[-self.keep_recent :]
        else:
            rows = last_turns(visible.messages, rows, self.keep_turns)
        most = at_most(self.max_messages, state)
        rows = rows if most is None else rows[-most:]
        decided = decisions(visible, dict.fromkeys(rows, "recent"))
        return Proposal(decided, kept_insertions=tuple(visible.insertions))


def last_turns(messages: Sequence[MessageRef], rows: list[int], turns: int) -> list[int]:
    """Those of ``rows`` that belong to the last ``turns`` turns; all where there are fewer turns.

    A turn begins at a human message.
    """
    begins = [place for place, row in enumerate(rows) if messages[row].facts.human]
    return rows if len(begins) < turns else rows[begins[-turns] :]
