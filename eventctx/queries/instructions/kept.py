"""What the ledger keeps of a session between questions: it grows with the log.

The fold's states hold no text; the texts are those of demands, and of what stands for them. All of
it lies in memory only, beside the session's key frames, and goes with them: an erasure, a deletion,
or another log under the same name leaves nothing of it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from eventctx.log.store import Address, EventStore
from eventctx.projections import instructions
from eventctx.projections.instructions import InstructionsState

EVERY: Final = 1_000
"""Records from one kept state to the next: the most that a question about the past folds."""


class KeptDemands:
    """The fold at some records, the demands of messages, and the texts of copies and insertions.

    None stands for a message without contents; ``sealed`` are the insertions that are encrypted.
    """

    def __init__(self) -> None:
        self.demands: dict[Address, tuple[str, ...] | None] = {}
        self.texts: dict[Address, str | None] = {}
        self.sealed: set[Address] = set()
        self._states: list[InstructionsState] = [instructions.initial()]
        self._ends: list[int] = [-1]

    def __len__(self) -> int:
        return self._states[-1].view.next_number

    async def at(self, store: EventStore, stream: str, position: int) -> InstructionsState:
        """The fold after the record at ``position``."""
        place = bisect_right(self._ends, position) - 1
        state, end = self._states[place], self._ends[place]
        if end == position:
            return state
        async for record in store.read(stream, start=end + 1, stop=position, bodies=False):
            state = instructions.evolve(state, record)
            if (record.position + 1) % EVERY == 0 or record.position == position:
                self._keep(state, record.position)
        return state

    def _keep(self, state: InstructionsState, position: int) -> None:
        """Keep a state behind all others; the last one may be of any record."""
        if position <= self._ends[-1]:
            return
        if len(self._ends) > 1 and (self._ends[-1] + 1) % EVERY:
            self._states.pop()
            self._ends.pop()
        self._states.append(state)
        self._ends.append(position)
