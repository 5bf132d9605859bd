"""Which message made the call that a result answers."""

from __future__ import annotations

from collections.abc import Collection

from eventctx.projections.explain.changes import Origin
from eventctx.projections.view.series import Series


def callers(origins: Series[Origin], first: int = 0) -> list[int]:
    """For every message from ``first``: the last message before it with a call that it answers.

    -1 for a message that answers no call, or one that was never added.
    """
    fresh = origins[first:]
    wanted = {call for one in fresh for call in one.ref.facts.results}
    made = {call for one in fresh for call in one.ref.facts.calls}
    last = with_calls(origins.first(first), wanted - made)
    found: list[int] = []
    for number, one in enumerate(fresh, first):
        facts = one.ref.facts
        found.append(max([last.get(call, -1) for call in facts.results], default=-1))
        for call in facts.calls:
            last[call] = number
    return found


def with_calls(origins: Series[Origin], wanted: Collection[str]) -> dict[str, int]:
    """The last message with each of these calls. It searches from the end, where they mostly are.

    A call that was never made costs a search through all messages.
    """
    missing = set(wanted)
    found: dict[str, int] = {}
    for number in range(len(origins) - 1, -1, -1):
        if not missing:
            break
        for call in origins[number].ref.facts.calls:
            if call in missing:
                found[call] = number
                missing.discard(call)
    return found
