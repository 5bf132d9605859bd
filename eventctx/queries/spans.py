"""A session's spans from its log: the same as those of the live run, with its ids and times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from eventctx.errors import InvalidSetting
from eventctx.log.store import EventStore
from eventctx.projections import numbering
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.fold import SessionTrace
from eventctx.projections.trace.spans import Span
from eventctx.projections.trace.texts import Clean
from eventctx.queries import requests as reading
from eventctx.queries.key_frames import timeline_at

_PROGRESS_EVERY = 500
"""Records between two calls of ``progress``."""


async def spans(
    store: EventStore,
    session: str,
    *,
    turn: int | None = None,
    contents: Clean | None = None,
    progress: Callable[[int], None] | None = None,
) -> AsyncIterator[Span]:
    """Yield the spans of a session, or of one of its turns, in the order in which they ended.

    A fork has only the spans of its own records. Spans that no record ended come last, as
    ``unfinished``. With ``contents``, a function that redacts a text, spans carry the texts of
    messages. ``progress`` is called every 500 records with the number of records read. Raises
    StreamNotFound, and InvalidSetting for a turn that the session does not have, or that is its
    parent's.
    """
    turn_id, stop = (None, None) if turn is None else await _own_turn(store, session, turn)
    info = await store.head(session)
    inherited = -1 if info is None or info.forked_at is None else info.forked_at
    state = SessionTrace.start(contents)
    done = 0
    async for record in store.read(session, stop=stop, bodies=contents is not None):
        state = state.after(record)
        for span in state.finished if record.position > inherited else ():
            if turn_id is None or span.attributes.get(conv.TURN_ID) == turn_id:
                yield span
        done += 1
        if progress is not None and done % _PROGRESS_EVERY == 0:
            progress(done)
    for span in state.unfinished():
        if turn_id is None or span.attributes.get(conv.TURN_ID) == turn_id:
            yield span


async def _own_turn(store: EventStore, session: str, number: int) -> tuple[str, int | None]:
    """The id of a turn, and the position after which nothing of it comes; None: not known.

    A turn that was resumed has several ends; one that did not end may go on at any time.
    """
    turn = await reading.turn_of(store, session, number)
    time = (await timeline_at(store, session)).changes.time
    own = [one for one in numbering.turns(time) if one.turn_id == turn.turn_id]
    ended = {position for turn_id, position, presumed in time.ends if not presumed}
    stop = max(one.last for one in own) if all(one.last in ended for one in own) else None
    info = await store.head(session)
    if info is not None and info.forked_at is not None and turn.last <= info.forked_at:
        raise InvalidSetting(
            f"turn {number} of session {session!r} was before the fork: trace {info.parent!r}"
        )
    return turn.turn_id, stop
