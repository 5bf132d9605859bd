"""Command handlers between sessions: fork one from another, and link a subagent to its parent."""

from __future__ import annotations

from collections.abc import Callable

from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.record import Draft
from eventctx.log.session_id import check_session_id
from eventctx.log.store import Appended, EventStore
from eventctx.session.append_queue import Clock
from eventctx.session.sessions import Sessions
from eventctx.session.turns import Scope


async def fork(
    store: EventStore,
    session: str,
    at: int,
    new_session: str,
    clock: Clock,
    random: Callable[[int], bytes],
) -> Appended:
    """Create ``new_session`` as ``session`` up to position ``at`` (inclusive), by reference.

    Raises StreamNotFound, StreamExists, InvalidSessionId, InvalidSetting.
    """
    check_session_id(new_session)
    if type(at) is not int:
        raise InvalidSetting(f"fork: expected a position (int), found {at!r}")
    name, version, payload = encode_event(events.SessionFork(parent=session, at=at))
    time, last = clock(), max(at, 0)
    async for record in store.read(session, start=last, stop=last, bodies=False):
        time = max(time, record.time)
    first = Draft(random(16), name, version, time, payload)
    return await store.fork(session, at, new_session, first)


async def link(
    store: EventStore, sessions: Sessions, parent: str, child: str, kind: str, call_id: str | None
) -> None:
    """Record in both sessions that ``child`` belongs to ``parent``.

    A parent that is not in the store is named in the child alone. Raises StreamNotFound where the
    child is not, and InvalidSetting; then neither has a record of it.
    """
    if await store.head(child) is None:
        raise StreamNotFound(child)
    of_child = events.SessionLinked(session=parent, relation="parent", kind=kind, call_id=call_id)
    of_parent = events.SessionLinked(session=child, relation="child", kind=kind, call_id=call_id)
    await _append(sessions, child, of_child)
    if await store.head(parent) is not None:
        await _append(sessions, parent, of_parent)


async def _append(sessions: Sessions, session: str, event: Event) -> None:
    context = sessions.context(session)
    if context is not None:
        await context.emit(event)
        return
    found = await sessions.take_up(session)
    await found.appends.append(found.draft(event, scope=Scope(session)))
