"""Opening a session: creating it if it is new, and closing what a crash left open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from eventctx.errors import WrongExpectedVersion
from eventctx.log import events
from eventctx.log.codec import decode_event
from eventctx.log.events import Event
from eventctx.log.record import Record
from eventctx.log.store import EventStore
from eventctx.projections.view import request_view
from eventctx.session.aggregate import Clock, Listener, LiveSession
from eventctx.session.loading import Loaded, load
from eventctx.session.scope import Scope
from eventctx.version import __version__


async def open_session(
    store: EventStore,
    stream: str,
    listener: Listener,
    clock: Clock,
    random: Callable[[int], bytes] = os.urandom,
    settings: dict[str, Any] | None = None,
    tokenizer: Callable[[str], int] | None = None,
) -> LiveSession:
    """Open a session, creating it with ``session:start`` if it is new.

    A compaction that a crash left open is closed as failed.
    """
    loaded = await load(store, stream)
    if loaded is None:
        loaded = Loaded(request_view.initial(), -1, b"", 0, -1, ())
    live = LiveSession(store, stream, loaded, listener, clock, random, tokenizer)
    if loaded.head < 0:
        start = events.SessionStart(library=__version__, settings=settings or {})
        # Another process may create it at the same moment: its record is as good as ours.
        with contextlib.suppress(WrongExpectedVersion):
            await live.append_exactly(-1, live.draft(start, Scope(stream)))
        await live.ready()
    for record in loaded.open_compactions:
        # Whoever opened the session at the same moment closes it too; one of us is enough.
        with contextlib.suppress(WrongExpectedVersion):
            await live.append_exactly(live.head, live.draft(_closed(record), _scope(record)))
    await live.ready()
    return live


def _scope(record: Record) -> Scope:
    return Scope(
        record.stream, record.turn_id, record.span_id, record.parent_span_id, record.iteration
    )


def _closed(record: Record) -> Event:
    event: Any = decode_event(record)
    return events.PostCompact(
        outcome="failed",
        trigger=event.trigger,
        strategy=event.strategy,
        strategy_version=event.strategy_version,
        tokens_before=event.tokens,
        tokens_after=event.tokens,
        messages_before=event.messages,
        messages_after=event.messages,
        estimator="",
        budget=event.budget,
        threshold=event.threshold,
        error="the process that began this compaction ended before it was done",
    )
