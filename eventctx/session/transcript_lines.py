"""The places of a session's messages in the log, folded from its records on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eventctx.log.store import EventStore
from eventctx.projections import transcript
from eventctx.projections.transcript import TranscriptState

LINE_BYTES: Final = 250
"""Memory of one line and its time; measured on CPython 3.11 to 3.13."""


class TimedTranscript(NamedTuple):
    """A transcript, and the times of the records that brought its messages.

    They are in UTC nanoseconds, by position.
    """

    state: TranscriptState
    times: Mapping[int, int]


class TranscriptLines:
    """The one fold of the transcript in this process. Most sessions never need it.

    Each call continues the fold of the last one.
    """

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._state = transcript.initial()
        self._times: dict[int, int] = {}

    @property
    def bytes_held(self) -> int:
        """About how much memory the lines take."""
        return len(self._times) * LINE_BYTES

    def let_go(self) -> None:
        """Forget the lines; the next call folds them from the beginning."""
        self._state, self._times = transcript.initial(), {}

    async def at(self, head: int) -> TranscriptState:
        """The transcript behind the record at ``head``. Raises what the store raises."""
        return (await self.timed_at(head)).state

    async def timed_at(self, head: int) -> TimedTranscript:
        """As ``at``, with times."""
        # Another task may fold at the same time, so each call works on a state of its own. Times
        # are added only, and those of a position never change.
        times = self._times
        state = self._state if self._state.position <= head else transcript.initial()
        if state.position < head:
            async for record in self._store.read(
                self._stream, start=state.position + 1, stop=head, bodies=False
            ):
                if record.bodies and record.type.startswith("context:message"):
                    times[record.position] = record.time
                state = transcript.evolve(state, record)
            if times is self._times:
                self._state = state
        return TimedTranscript(state, times)
