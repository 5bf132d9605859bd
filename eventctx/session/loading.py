"""Reading a session's view from its store: the newest snapshot, and the records behind it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.record import Record
from eventctx.log.store import EventStore, Snapshot
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.request_view import ViewState

SNAPSHOT = "request_view"
"""The name under which the request view's snapshots are kept."""


class Loaded(NamedTuple):
    """A session's view as read from the store, with the id and time of its last record."""

    view: ViewState
    head: int
    last_id: bytes
    time: int
    snapshot: int
    open_compactions: tuple[Record, ...]


async def load(store: EventStore, stream: str) -> Loaded | None:
    """Read a session's view: its newest snapshot and the records behind it. None if it is new."""
    info = await store.head(stream)
    if info is None or info.head < 0:
        return None
    state, start = request_view.initial(), 0
    snapshot = await store.load_snapshot(stream, SNAPSHOT)
    if snapshot is not None and snapshot.position <= info.head:
        usable = await _restored(store, stream, snapshot)
        if usable is not None:
            state, start = usable, snapshot.position + 1
    last_id, time = b"", 0
    compactions: dict[str | None, Record] = {}
    # The last record is read even when the snapshot covers it: its time must not be undercut.
    async for record in store.read(stream, start=min(start, info.head), bodies=False):
        if record.position >= start:
            state = request_view.evolve(state, record)
        last_id, time = record.id, record.time
        if record.type == "context:pre_compact":
            compactions[record.span_id] = record
        elif record.type == "context:post_compact":
            compactions.pop(record.span_id, None)
    kept = start - 1
    return Loaded(state, state.position, last_id, time, kept, tuple(compactions.values()))


async def _restored(store: EventStore, stream: str, snapshot: Snapshot) -> ViewState | None:
    if snapshot.version != view_snapshot.VERSION:
        return None
    async for record in store.read(
        stream, start=snapshot.position, stop=snapshot.position, bodies=False
    ):
        if record.digest == snapshot.digest:
            try:
                return view_snapshot.load(snapshot.data)
            except (msgspec.DecodeError, DecodeError):
                return None  # a snapshot is only a cache: a damaged one is as good as none
    return None
