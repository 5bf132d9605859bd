"""Where positions lie in JetStream: a bounded index in memory, of units that were seen.

The sequence of a message says nothing about positions, and no server can be asked for one. But
both rise together, so any unit seen narrows the search for another. Nothing here is needed: what
was forgotten is found again with some more questions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import Final, NamedTuple

MOST_UNITS: Final = 500_000
"""Most units of all sessions together, of about 16 bytes each."""


class Seen(NamedTuple):
    """The unit whose first record has the position ``first`` begins at ``sequence``."""

    first: int
    sequence: int


class _Session:
    __slots__ = ("firsts", "sequences")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.sequences: list[int] = []


class Positions:
    """The units of many sessions; the sessions that were not asked for lately go first."""

    def __init__(self, most: int = MOST_UNITS) -> None:
        self._most = most
        self._count = 0
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def add(self, session: str, first: int, sequence: int) -> None:
        """Note that a unit begins with the position ``first`` and at ``sequence``."""
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = _Session()
        if not found.firsts or first > found.firsts[-1]:
            found.firsts.append(first)
            found.sequences.append(sequence)
        else:
            place = bisect_right(found.firsts, first)
            if place and found.firsts[place - 1] == first:
                found.sequences[place - 1] = sequence
                return
            found.firsts.insert(place, first)
            found.sequences.insert(place, sequence)
        self._count += 1
        while self._count > self._most and len(self._sessions) > 1:
            oldest = next(iter(self._sessions))
            self.forget(session if oldest == session else oldest)

    def before(self, session: str, position: int) -> Seen | None:
        """The last unit seen that begins at ``position`` or before; None if there is none."""
        found = self._sessions.get(session)
        if found is None:
            return None
        self._sessions.move_to_end(session)
        place = bisect_right(found.firsts, position)
        return Seen(found.firsts[place - 1], found.sequences[place - 1]) if place else None

    def after(self, session: str, position: int) -> Seen | None:
        """The first unit seen that begins behind ``position``; None if there is none."""
        found = self._sessions.get(session)
        if found is None:
            return None
        place = bisect_right(found.firsts, position)
        if place == len(found.firsts):
            return None
        return Seen(found.firsts[place], found.sequences[place])

    def forget(self, session: str) -> None:
        """Drop what is known of a session."""
        found = self._sessions.pop(session, None)
        if found is not None:
            self._count -= len(found.firsts)
