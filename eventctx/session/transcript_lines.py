"""Where the messages of a session's transcript lie, folded from its records when somebody asks."""

from __future__ import annotations

from eventctx.log.store import EventStore
from eventctx.projections import transcript
from eventctx.projections.transcript import TranscriptState


class TranscriptLines:
    """The one fold of the transcript in this process. Most sessions are never asked for it.

    It goes on from where the last call left off. ``times`` are those of the records that brought
    messages, in UTC nanoseconds by position.
    """

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._state = transcript.initial()
        self.times: dict[int, int] = {}

    async def at(self, head: int) -> TranscriptState:
        """The transcript behind the record at ``head``. Raises what the store raises."""
        # Another task may be reading the same; each goes on from what it found.
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
