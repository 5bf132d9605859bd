"""Records that a listing cannot read: it goes on without them, and says so at its end.

Views refuse such a record, because to leave it out would give another view. A listing only counts,
so one record of a later release, or a damaged one, must not hide everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import FOUND, CommandFailed, complain
from eventctx.errors import DecodeError, EventctxError, LogCorrupted, StoreError
from eventctx.log.codec import Unknown, decode_event
from eventctx.log.record import Record

S = TypeVar("S")


class PassedOver:
    """Records that one command skipped; ``tell`` lists them on stderr behind the full output."""

    def __init__(self) -> None:
        self._later: Counter[str] = Counter()
        self._damaged: list[str] = []
        self._broken: list[Exception] = []

    def event(self, record: Record) -> Any:
        """The event of a record; None, and noted, where this release cannot read it."""
        try:
            event = decode_event(record)
        except DecodeError as error:
            self._damaged.append(str(error))
            return None
        if isinstance(event, Unknown):
            self._later[f"{event.type} of version {event.version}"] += 1
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
            self._damaged.append(f"session {name!r} cannot be read to its end: {error}")
            return
        error.add_note(f"while reading session {name!r}")
        self._broken.append(error)

    def tell(self) -> None:
        """Say what was passed over. Raises CommandFailed where it is damage.

        An error that is none of the library's own is raised again: it is a bug, to be reported.
        """
        for what, count in self._later.items():
            complain(
                f"{plural(count, 'record')} passed over: {what}, written by a later release; "
                "update eventctx to read what is missing here"
            )
        for problem in self._damaged:
            complain(f"{problem}; passed over; `eventctx verify` lists all damage")
        if self._broken:
            raise self._broken[0]
        if self._damaged:
            raise CommandFailed(FOUND)
