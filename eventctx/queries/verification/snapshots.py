"""The check that a stored snapshot is the state that follows from the records before it."""

from __future__ import annotations

from typing import Any

from eventctx.errors import DecodeError
from eventctx.log.record import Record
from eventctx.log.store import EventStore, Snapshot, StreamInfo
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.queries.verification.findings import Findings


class SnapshotChecker:
    """Folds the request view up to the snapshot's position, and compares the bytes."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._snapshot: Snapshot | None = None
        self._state: Any = request_view.initial()

    async def load(self, store: EventStore, info: StreamInfo) -> None:
        """Read the snapshot of a stream; one of another version is not read by anybody."""
        snapshot = await store.load_snapshot(info.stream, view_snapshot.NAME)
        if snapshot is None or snapshot.version != view_snapshot.VERSION:
            return
        if snapshot.position > info.head:
            text = f"the snapshot is for position {snapshot.position}, behind the last record"
            self._found.report(info.head, "snapshot", text)
            return
        self._snapshot = snapshot

    def give_up(self) -> None:
        """A record is damaged, so nothing can be derived any more."""
        self._snapshot = None

    def take(self, record: Record) -> None:
        """Fold a record, and compare at the snapshot's position."""
        if self._snapshot is None:
            return
        try:
            self._state = request_view.evolve(self._state, record)
        except DecodeError:  # of a later release, which alone can fold it
            self.give_up()
            return
        if record.position == self._snapshot.position:
            if self._snapshot.digest != record.digest:
                self._report(record, "names another digest than the record's")
            elif view_snapshot.dump(self._state) != self._snapshot.data:
                self._report(record, "does not follow from the records")
            self.give_up()

    def _report(self, record: Record, problem: str) -> None:
        text = f"the snapshot for position {record.position} {problem}; views may be wrong"
        self._found.report(record.position, "snapshot", text)
