"""The repository: loads a session from its snapshot and the records after it.

``open_session`` creates a new session. In an existing one it closes the compactions that a crash
left open, and notes the spans, which the next turn ends. ``make_session`` with no state makes one
that was open before and was evicted since. ``load`` only reads the state; an append queue uses it
after a conflict, and for an evicted session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import Any, Final

import msgspec

from eventctx.errors import (
    DecodeError,
    EventctxError,
    LogCorrupted,
    SessionWasDeleted,
    StreamNotFound,
    WrongExpectedVersion,
)
from eventctx.log import events
from eventctx.log.codec import decode_known
from eventctx.log.events import Event
from eventctx.log.record import GENESIS, Record, follows
from eventctx.log.store import EventStore, Snapshot
from eventctx.messages.encoding import pause_collector
from eventctx.messages.tokens import Tokenizer
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.request_view import ViewState
from eventctx.session.activity import left_open_in
from eventctx.session.aggregate import Aggregate, Loaded
from eventctx.session.append_queue import AppendQueue
from eventctx.session.contents import BodyCache, TranscriptLines
from eventctx.session.open_session import OpenSession
from eventctx.session.pending import Clock, Idle, Listener
from eventctx.session.scope import Drafts, Scope
from eventctx.version import __version__

FOLDED_TOGETHER: Final = 2_000
"""Records that loading reads before it folds them: in one step, where all add messages."""

NEW = Loaded(request_view.initial(), -1, b"", 0, -1, ())
"""The state of a session that has no record yet."""


async def open_session(
    store: EventStore,
    stream: str,
    listener: Listener,
    clock: Clock,
    random: Callable[[int], bytes] = os.urandom,
    settings: dict[str, Any] | None = None,
    tokenizer: Tokenizer | None = None,
) -> OpenSession:
    """Open a session, creating it with ``session:start`` if it is new.

    A compaction that a crash left open is closed as failed, except in a mirror of a file.
    """
    loaded = await load(store, stream) or NEW
    session = make_session(store, stream, loaded, listener, clock, random, tokenizer)
    session.memory.left_open = left_open_in(loaded.view)
    if loaded.head < 0:
        start = events.SessionStart(library=__version__, settings=settings or {})
        # Another process may create the session at the same moment; either record will do.
        with contextlib.suppress(WrongExpectedVersion):
            await session.appends.append_exactly(
                -1, session.drafts.make(start, scope=Scope(stream))
            )
        await session.appends.ready()
    # A mirror's compaction without an end is one whose file was read only so far.
    left_open = () if session.aggregate.mirror is not None else loaded.open_compactions
    for record in left_open:
        draft = session.drafts.make(_closing_event(record), scope=_scope(record))
        # Another process that opens the session now closes it too; one end is enough.
        with contextlib.suppress(WrongExpectedVersion):
            await session.appends.append_exactly(session.appends.head, draft)
    await session.appends.ready()
    return session


def make_session(
    store: EventStore,
    stream: str,
    loaded: Loaded | None,
    listener: Listener,
    clock: Clock,
    random: Callable[[int], bytes] = os.urandom,
    tokenizer: Tokenizer | None = None,
) -> OpenSession:
    """Make the parts of a session from its loaded state; nothing is written.

    Without one (None), the first command that needs the state has it loaded.
    """
    bodies = BodyCache(store, stream)
    aggregate = Aggregate(stream, loaded, bodies)
    reload = partial(load, store, stream)
    lines = TranscriptLines(store, stream)
    drafts = Drafts(stream, clock, random)
    appends = AppendQueue(store, aggregate, loaded, listener, drafts, reload, lines)
    stopwatch: Callable[[], int] = getattr(clock, "stopwatch", perf_counter_ns)
    session = OpenSession(
        stream, store, aggregate, drafts, appends, bodies, lines, random, stopwatch, tokenizer
    )
    session.note_model(None if loaded is None else loaded.view.calibration.model)
    return session


async def load(store: EventStore, stream: str, until: int | None = None) -> Loaded | None:
    """Read a session's view: its newest snapshot and the records after it. None if it is new.

    ``until`` is the position of the last record to read.
    """
    info = await store.head(stream)
    if info is None or info.head < 0:
        return None
    if info.deleted:
        raise SessionWasDeleted(stream)
    head = info.head if until is None else min(until, info.head)
    state, start, previous = request_view.initial(), 0, GENESIS
    snapshot = await store.load_snapshot(stream, view_snapshot.NAME)
    if snapshot is not None and snapshot.position <= head:
        usable = await _restore_view(store, stream, snapshot)
        if usable is not None:
            state, start, previous = usable, snapshot.position + 1, snapshot.digest
    last_id, time = b"", 0
    compactions: dict[str | None, Record] = {}
    # The last record is read even when the snapshot covers it: the next append needs its id, and
    # no earlier time than it has.
    unfolded: list[Record] = []
    async for record in store.read(stream, start=min(start, head), stop=head, bodies=False):
        last_id, time = record.id, record.time
        if record.type == "context:pre_compact":
            compactions[record.span_id] = record
        elif record.type == "context:post_compact":
            compactions.pop(record.span_id, None)
        if record.position >= start:
            unfolded.append(record)
        if len(unfolded) >= FOLDED_TOGETHER:
            state, previous = _fold(state, previous, unfolded)
            unfolded = []
    state, _ = _fold(state, previous, unfolded)
    kept = start - 1
    return Loaded(state, state.position, last_id, time, kept, tuple(compactions.values()))


def _fold(state: ViewState, previous: bytes, records: Sequence[Record]) -> tuple[ViewState, bytes]:
    """The view after ``records``, and the digest of the last one. Raises LogCorrupted."""
    for position, record in enumerate(records, state.position + 1):
        _check_follows(previous, position, record)
        previous = record.digest
    with pause_collector(len(records)):
        return request_view.evolve_all(state, records), previous


def _check_follows(previous: bytes, position: int, record: Record) -> None:
    """Raise LogCorrupted for a record that cannot have been written after the one before."""
    if record.position != position or not follows(previous, record):
        raise LogCorrupted(
            record.stream,
            position,
            "the record does not follow from the one before it: one of them was edited, moved or "
            "removed. Restore the store from a backup, or go on from before it with "
            f"`eventctx fork {record.stream} NEW --at {position - 1}`",
        )


async def _restore_view(store: EventStore, stream: str, snapshot: Snapshot) -> ViewState | None:
    if snapshot.version != view_snapshot.VERSION:
        return None
    async for record in store.read(
        stream, start=snapshot.position, stop=snapshot.position, bodies=False
    ):
        if record.digest == snapshot.digest:
            try:
                return view_snapshot.load(snapshot.data)
            except (msgspec.DecodeError, DecodeError):
                return None  # a snapshot is only a cache: a damaged one is ignored
    return None


def _scope(record: Record) -> Scope:
    return Scope(
        record.stream, record.turn_id, record.span_id, record.parent_span_id, record.iteration
    )


def _closing_event(record: Record) -> Event:
    event: Any = decode_known(record)
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


async def mirror_of(store: EventStore, session: str) -> str | None:
    """The name of the file that a session mirrors; None for ours. Raises StreamNotFound.

    Of a session that was imported the key frames tell; no other one is read.
    """
    info = await store.head(session)
    if info is None or info.head < 0:
        raise StreamNotFound(session)
    if info.deleted:
        raise SessionWasDeleted(session)
    if info.parent is not None:
        return None
    async for record in store.read(session, stop=0, bodies=False):
        if record.type == "session:start" and decode_known(record).imported_at is None:
            return None
    from eventctx.queries.key_frames import timeline_at  # with the first question

    return (await timeline_at(store, session)).view.mirror


FRAMES_EVERY: Final = 1_000
"""Records after which a session's key frames are brought forward: those of one frame."""

PAUSE: Final = 0.25
"""Seconds without an append after which an agent waits for a model, a tool or a person."""


class IdleFrames:
    """Brings key frames forward while a session pauses, so that its first question is a short one.

    A session is due once it has passed a thousandth record. Invariants: no append waits for it, and
    nothing stays in memory but the names of sessions that are due; a store without files has none.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._last: dict[str, float] = {}
        self._idle = Idle(self._begin, PAUSE)
        self._task: asyncio.Task[None] | None = None

    def after(self, publish: Callable[[Record], None]) -> Callable[[Record], None]:
        """A listener to records that calls ``publish`` and then looks whether a session is due."""
        if self._store.cache_path is None:
            return publish

        def published(record: Record) -> None:
            publish(record)
            if record.stream in self._last or not (record.position + 1) % FRAMES_EVERY:
                self._last[record.stream] = perf_counter()
                self._idle.set()

        return published

    async def fold(self, pause: float = PAUSE) -> None:
        """Fold the sessions that are due and had no append for ``pause`` seconds."""
        from eventctx.queries.key_frames import key_frames  # an agent's start loads no fold

        until = perf_counter() - pause
        for stream in [stream for stream, last in self._last.items() if last <= until]:
            self._last.pop(stream, None)
            with contextlib.suppress(EventctxError):  # the next question folds it, or raises
                await key_frames(self._store).save(stream)
        if self._last:
            self._idle.set()

    async def close(self) -> None:
        """Fold no more."""
        self._last.clear()
        task = self._task
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait((task,))

    def _begin(self) -> None:
        if self._last and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self.fold())
