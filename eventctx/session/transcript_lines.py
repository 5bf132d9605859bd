"""The places of a session's messages in the log, folded from its records on demand."""

from __future__ import annotations

from eventctx.log.store import EventStore
from eventctx.projections import transcript
from eventctx.projections.transcript import TranscriptState


class TranscriptLines:
    """The one fold of the transcript in this process. Most sessions never need it.

    Each call continues the fold of the last one. ``times`` are those of the records that brought
    messages, in UTC nanoseconds by position.
    """

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._state = transcript.initial()
        self.times: dict[int, int] = {}

    async def at(self, head: int) -> TranscriptState:
        """The transcript behind the record at ``head``. Raises what the store raises."""
        # Another task may fold at the same time, so each call works on a state of its own.
        state = self._state if self._state.position <= head else transcript.initial()
        if state.position < head:
            async for record in self._store.read(
                self._stream, start=state.position + 1, stop=head, bodies=False
            ):
                if record.bodies and record.type.startswith("context:message"):
                    self.times[record.position] = record.time
                state = transcript.evolve(state, record)
            self._state = state
        return state
