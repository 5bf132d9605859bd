"""Records that a listing cannot read: it goes on without them, and keeps what it passed over.

Views refuse such a record, because to leave it out would give another view. A listing only counts,
so one record of a later release, or a damaged one, must not hide everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from eventctx.errors import DecodeError, EventctxError, LogCorrupted, StoreError
from eventctx.log.codec import Unknown, decode_event
from eventctx.log.record import Record

S = TypeVar("S")


class ReadErrors:
    """Records and sessions that one listing skipped.

    ``later`` counts records of later releases by what they are; ``damaged`` says what could not be
    read, a line each; ``broken`` are errors that are none of the library's own. ``asides`` are
    about files kept with the log, which may be sound all the same.
    """

    def __init__(self) -> None:
        self.later: Counter[str] = Counter()
        self.damaged: list[str] = []
        self.broken: list[Exception] = []
        self.asides: list[str] = []

    @property
    def count(self) -> int:
        """How much was skipped so far."""
        return self.later.total() + len(self.damaged) + len(self.broken) + len(self.asides)

    def event(self, record: Record) -> Any:
        """The event of a record; None, and noted, where this release cannot read it."""
        try:
            event = decode_event(record)
        except DecodeError as error:
            self.damaged.append(str(error))
            return None
        if isinstance(event, Unknown):
            self.later[f"{event.type} of version {event.version}"] += 1
            return None
        return event

    def fold(self, evolve: Callable[[S, Record], S], state: S, record: Record) -> S:
        """The state after a record; without it, and noted, where this release cannot read it."""
        try:
            return evolve(state, record)
        except DecodeError:
            self.event(record)
            return state

    def session(self, name: str, error: Exception) -> None:
        """Note a session that could not be read to its end.

        Raises ``error`` where the store itself cannot be read: then no other session can.
        """
        if isinstance(error, StoreError) and not isinstance(error, LogCorrupted):
            raise error
        if isinstance(error, EventctxError):
            self.damaged.append(f"session {name!r} cannot be read to its end: {error}")
            return
        error.add_note(f"while reading session {name!r}")
        self.broken.append(error)
