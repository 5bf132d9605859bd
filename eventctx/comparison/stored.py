"""Sessions of a store, made ready to be played."""

from __future__ import annotations

from collections.abc import Sequence

from eventctx.comparison.compare import UnusedSession
from eventctx.comparison.recording import Recording
from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_known
from eventctx.log.store import EventStore
from eventctx.projections.view import request_view
from eventctx.queries.records import transcript_at


async def recording_of(store: EventStore, stream: str) -> Recording:
    """The session up to its first compaction: what follows was done by a model that had forgotten.

    It ends before the first erased message, too. Raises InvalidSetting where no model answered
    until there, and StreamNotFound.
    """
    view = request_view.initial()
    last: int | None = None
    compacted = False
    async for record in store.read(stream, bodies=False):
        if record.type == "context:post_compact" and decode_known(record).outcome == "applied":
            compacted = True
            break
        view = request_view.evolve(view, record)
        last = record.position
    lines = [] if last is None else await transcript_at(store, stream, last)
    messages = []
    for line in lines:
        if line.message is None:
            break
        messages.append(line.message)
    used = lines[: len(messages)]
    whole = len(await transcript_at(store, stream)) if compacted else len(lines)
    recording = Recording(
        messages,
        name=stream,
        model=view.calibration.model,
        numbers=[line.number for line in used],
        harness=frozenset([at for at, line in enumerate(used) if line.origin is not None]),
        observations=frozenset(
            [at for at, line in enumerate(used) if line.origin == "observation"]
        ),
        left_out=max(0, whole - len(messages)),
    )
    if not recording.requests:
        until = " before its first compaction" if compacted else ""
        found = f"{len(messages)} messages and no answer" if messages else "no message"
        raise InvalidSetting(
            f"session {stream!r}: expected an answer of a model to a request{until}, found {found}"
        )
    return recording


async def recordings_of(
    store: EventStore, streams: Sequence[str]
) -> tuple[list[Recording], list[UnusedSession]]:
    """The sessions that can be played, and those that cannot. Raises StreamNotFound."""
    found: list[Recording] = []
    unused: list[UnusedSession] = []
    for stream in dict.fromkeys(streams):
        try:
            found.append(await recording_of(store, stream))
        except InvalidSetting as error:
            unused.append(UnusedSession(stream, str(error)))
    return found, unused
