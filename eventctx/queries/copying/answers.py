"""The outcome of a copy, and what is said while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

MOST_PROBLEMS: Final = 1_000
"""Problems that a result lists; the others are counted."""

CopyStep = Literal["comparing", "copying", "checking"]

CopyProgress = Callable[[CopyStep, int, int], None]
"""Gets the step, and how far it is: sessions that were compared or checked, or records that were
copied, and the number of all (0: not known yet)."""


class CopyProblem(msgspec.Struct, frozen=True):
    """Why a session is not in the target as it is in the source; ``position`` is -1 for all of it.

    ``damage`` is whether stored records contradict their digests, in the source or the target.
    """

    session: str
    position: int
    text: str
    damage: bool = False


class CopyResult(msgspec.Struct, frozen=True):
    """The outcome of a copy of ``sessions``.

    ``copied`` are new in the target, ``continued`` had records there before, ``unchanged`` had all.
    ``deleted`` are marks of deletions that were set, ``left_out`` those that the target's store
    cannot hold. ``records`` and ``bytes`` (of payloads and contents) were written now. ``erased``
    contents were in the target and gone in the source. ``checked`` sessions were read back and are
    the source's, record by record. ``problems`` are the first ones of ``failed`` sessions.
    """

    sessions: int = 0
    copied: int = 0
    continued: int = 0
    unchanged: int = 0
    deleted: int = 0
    left_out: int = 0
    records: int = 0
    bytes: int = 0
    erased: int = 0
    checked: int = 0
    failed: int = 0
    problems: tuple[CopyProblem, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every session is in the target as it is in the source."""
        return not self.failed


class CopyTally:
    """A result while it is made."""

    def __init__(self) -> None:
        self.sessions = self.copied = self.continued = self.unchanged = 0
        self.deleted = self.left_out = self.records = self.bytes = self.erased = self.checked = 0
        self._problems: dict[str, CopyProblem] = {}

    def failed(self, session: str) -> bool:
        """Whether a problem of the session was noted."""
        return session in self._problems

    def problem(self, session: str, position: int, text: str, *, damage: bool = False) -> None:
        """Note the first problem of a session."""
        self._problems.setdefault(session, CopyProblem(session, position, text, damage))

    def result(self) -> CopyResult:
        """What was counted."""
        return CopyResult(
            self.sessions,
            self.copied,
            self.continued,
            self.unchanged,
            self.deleted,
            self.left_out,
            self.records,
            self.bytes,
            self.erased,
            self.checked,
            len(self._problems),
            tuple(self._problems.values())[:MOST_PROBLEMS],
        )
