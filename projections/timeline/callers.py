"""Which message made the call that a result answers."""

from __future__ import annotations

from eventctx.projections.explain.changes import Origin
from eventctx.projections.view.series import Series


def callers(origins: Series[Origin], first: int = 0) -> list[int]:
    """For every message from ``first``: the last message before it with a call that it answers.

    -1 for a message that answers no call, or one that is not in the transcript.
    """
    last: dict[str, int] = {}
    found: list[int] = []
    for number, one in enumerate(origins):
        facts = one.ref.facts
        caller = -1
        for call in facts.results:
            caller = max(caller, last.get(call, -1))
        if number >= first:
            found.append(caller)
        for call in facts.calls:
            last[call] = number
    return found
