"""The sessions that the page lists: those that were made last, however many there are."""

from __future__ import annotations

from collections import deque
from typing import Final

from eventctx.log.store import EventStore, StreamInfo

MOST: Final = 2_000
"""Sessions in the list. Each is asked about again with every look, and has a row in the page."""


class NewestSessions:
    """The last ``most`` sessions of a store in order of creation, without deleted ones.

    ``older`` is how many were made before them. The first look reads the names of all; later ones
    begin behind the last session that was left out.
    """

    def __init__(self, store: EventStore, most: int = MOST) -> None:
        self.older = 0
        self._store = store
        self._most = most
        self._before: str | None = None

    async def look(self) -> list[StreamInfo]:
        """The sessions as they are now."""
        shown: deque[StreamInfo] = deque()
        before, older = self._before, self.older
        async for info in self._store.streams(after=before):
            if info.deleted:
                continue
            shown.append(info)
            if len(shown) > self._most:
                before = shown.popleft().stream
                older += 1
        # Another look may have gone on meanwhile.
        if older >= self.older:
            self._before, self.older = before, older
        return list(shown)
