"""The sessions of one engine that hold state in memory, within two bounds.

Sessions are let go in the order of their last use, while they are more than ``most`` or hold more
than ``most_bytes``. Nobody notices: the next command that needs the state has it loaded again
(``OpenSession.let_go``). A session that has something under way is passed over and looked at again
later, and the one used last always stays, so the bounds are goals: many sessions in use at once may
exceed them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import islice
from typing import Final

from eventctx.policies.constraints import AtLeastOne, checked
from eventctx.session.open_session import OpenSession

MOST_OPEN_SESSIONS: Final = 256
"""Sessions of one engine that are kept, by default."""

OPEN_SESSION_BYTES: Final = 64 * 2**20
"""About how much memory they may take together, by default."""

MOST_LOOKS: Final = 8
"""Sessions that one use looks at; so its cost is bounded, however many are under way."""


USES_BETWEEN: Final = 16
"""Uses of a session after which it is measured again; measuring takes 3 µs."""

GROWTH_BETWEEN: Final = 64 * 2**10
"""Bytes of bodies by which it may grow until then."""


class _Measured:
    """What a session held when it was measured, and its uses since."""

    __slots__ = ("bodies", "size", "uses")

    def __init__(self, session: OpenSession) -> None:
        self.size = session.bytes_held
        self.bodies = session.body_bytes
        self.uses = 0

    def is_outdated(self, session: OpenSession) -> bool:
        """Whether the session may hold far more by now."""
        return self.uses > USES_BETWEEN or session.body_bytes >= self.bodies + GROWTH_BETWEEN


class Residents:
    """The sessions that are kept, from the least to the most recently used.

    A session that would behave otherwise if it were made anew (``OpenSession.remembers``) is kept
    without its state. All others belong to their callers alone once they were let go. Safe to use
    from several threads.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        """Raises InvalidSetting, which names the bounds as ``Engine`` does."""
        self._most: int = checked("most_open_sessions", most, AtLeastOne)
        self._most_bytes: int = checked("open_session_bytes", most_bytes, AtLeastOne)
        # A collection of garbage within the lock may run code that uses a session.
        self._lock = threading.RLock()
        self._kept: OrderedDict[OpenSession, _Measured] = OrderedDict()
        self._total = 0
        self._remembering: set[OpenSession] = set()

    def used(self, session: OpenSession) -> None:
        """Note a use of ``session``, and let others go where the bounds ask for it."""
        with self._lock:
            kept = self._kept.get(session)
            if kept is not None:
                self._kept.move_to_end(session)
                kept.uses += 1
                if not kept.is_outdated(session):
                    return
            self._measure(session)
            self._remembering.discard(session)
            if self._exceeded():
                self._shrink(session)

    def _measure(self, session: OpenSession) -> None:
        measured, before = _Measured(session), self._kept.get(session)
        self._total += measured.size - (0 if before is None else before.size)
        self._kept[session] = measured

    def forget(self, session: OpenSession) -> None:
        """Keep ``session`` no longer: it was closed."""
        with self._lock:
            kept = self._kept.pop(session, None)
            self._total -= 0 if kept is None else kept.size
            self._remembering.discard(session)

    def _exceeded(self) -> bool:
        return len(self._kept) > self._most or self._total > self._most_bytes

    def _shrink(self, used: OpenSession) -> None:
        for session in list(islice(self._kept, MOST_LOOKS)):
            if session is used or not self._exceeded():
                return
            if session.let_go():
                self._total -= self._kept.pop(session).size
                if session.remembers:
                    self._remembering.add(session)
            else:
                self._kept.move_to_end(session)

    def __len__(self) -> int:
        return len(self._kept)
