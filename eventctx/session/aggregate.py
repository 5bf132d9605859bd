"""The aggregate: one session's state in this process, folded from its records.

This is the only place where records are folded ahead of the disk. A draft that got its position is
noted at once and folded when the view is read. ``preview`` folds drafts that are only
considered, and changes nothing.

Invariant: the view is that of all records up to the last draft with a position. When another
process wrote in between, this no longer holds, and ``install`` replaces the whole state with the
one that was read from the store.

The view may be evicted at any moment, and the next read loads it again from the store. Until then
the aggregate notes no drafts, since their records will be read with all others.

Every method that changes the aggregate is called under ``lock``, which the append queue shares.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from eventctx.log.record import Draft, Record, place
from eventctx.log.store import Snapshot
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.request_view import ViewState
from eventctx.session.contents import BodyCache
from eventctx.session.pending import numbers_given

SNAPSHOT_EVERY = 256
"""Records between snapshots, at least.

Of a large view as many as half its messages: a session of messages alone gets a snapshot each time
it doubles, so snapshots cost it a constant for each message, and loading folds half of it at most.
"""

MAX_UNFOLDED = 32
"""Records that may wait for their fold until the view is read."""

MAX_UNFOLDED_BYTES = 2**20
"""Bytes of their bodies, at most: once folded, the body cache bounds them."""

MAX_UNREAD = 4_096
"""Records since the view was last read, after which it is evicted.

A program that adds a long history without a request would hold 0.5 kB for every message of it.
"""

REF_BYTES = 500
"""Memory of one message in a view, with its facts; measured on CPython 3.11 to 3.13."""


class Loaded(NamedTuple):
    """A session's view as read from the store, with the id and time of its last record."""

    view: ViewState
    head: int
    last_id: bytes
    time: int
    snapshot: int
    open_compactions: tuple[Record, ...]


class Aggregate:
    """The folded state of one session. Made by ``repository.open_session``."""

    def __init__(self, stream: str, loaded: Loaded | None, bodies: BodyCache) -> None:
        """``loaded`` is None for a session whose state is read when it is first needed."""
        self.stream = stream
        self.bodies = bodies
        self.lock = threading.RLock()
        self.open_compactions: set[str | None] = set()
        self.mirror: str | None = None
        self.next_number = 0
        self._view: ViewState | None = None
        self._unfolded: list[Draft] = []
        self._unfolded_bytes = 0
        self._unread = 0
        self._snapshot = -1
        if loaded is not None:
            self.install(loaded)

    def install(self, loaded: Loaded) -> None:
        """Replace the state with the one that was read from the store."""
        self._view = loaded.view
        self.mirror = loaded.view.mirror
        self.next_number = loaded.view.next_number
        self._forget_unfolded()
        self._unread = 0
        self._snapshot = loaded.snapshot
        self.open_compactions = {record.span_id for record in loaded.open_compactions}
        self.bodies.clear()

    def evict(self) -> None:
        """Forget the view and the bodies; a mirror's file and what is counted stay known."""
        self._view = None
        self._forget_unfolded()
        self._unread = 0
        self.bodies.clear()

    def read(self) -> ViewState | None:
        """As ``view_if_held``, and keep the view for the next read."""
        with self.lock:
            self._unread = 0
            return self._present()

    @property
    def view_if_held(self) -> ViewState | None:
        """The view after everything that was handed to the store; None after an eviction."""
        with self.lock:
            return self._present()

    @property
    def view(self) -> ViewState:
        """The view, where it is known to be held. Raises LookupError after an eviction."""
        view = self.read()
        if view is None:
            raise LookupError(f"the view of {self.stream!r} was evicted: await AppendQueue.settle")
        return view

    @property
    def bytes_held(self) -> int:
        """About how much memory the view and the bodies take."""
        view = self._view
        refs = 0 if view is None else len(view.layout.refs)
        return refs * REF_BYTES + self._unfolded_bytes + self.bodies.memory

    @property
    def unfolded_bytes(self) -> int:
        """Bytes of the bodies that wait for their fold; the body cache counts them afterwards."""
        return self._unfolded_bytes

    def _present(self) -> ViewState | None:
        if self._view is not None and self._unfolded:
            self._take_fold(preview(self._view, self.stream, self._unfolded))
        return self._view

    # -- folding ---------------------------------------------------------------------------------

    def note_appended(self, drafts: Sequence[Draft], after: ViewState | None = None) -> None:
        """Note drafts that got their positions; ``after`` is the view after them, if known.

        They are folded when the view is read: folding now would keep the store's thread from
        starting.
        """
        for draft in drafts:
            self.next_number += numbers_given(draft)
        if self._view is None and after is None:
            return
        self._unfolded.extend(drafts)
        self._unfolded_bytes += sum([len(one.data or b"") for d in drafts for one in d.bodies])
        self._unread += len(drafts)
        if after is not None and len(self._unfolded) == len(drafts):
            self._take_fold(after)
        elif self._unread > MAX_UNREAD and not self.open_compactions:
            self.evict()
        elif len(self._unfolded) > MAX_UNFOLDED or self._unfolded_bytes > MAX_UNFOLDED_BYTES:
            self._present()

    def _take_fold(self, view: ViewState) -> None:
        first = view.position + 1 - len(self._unfolded)
        for position, draft in enumerate(self._unfolded, start=first):
            if draft.bodies:
                self.bodies.add(position, draft.bodies)
        self._view = view
        self._forget_unfolded()

    def _forget_unfolded(self) -> None:
        self._unfolded.clear()
        self._unfolded_bytes = 0

    def note_written(self, records: Sequence[Record]) -> None:
        """Note records that are on disk now: compactions that began, and those that ended."""
        for record in records:
            if record.type == "context:pre_compact":
                self.open_compactions.add(record.span_id)
            elif record.type == "context:post_compact":
                self.open_compactions.discard(record.span_id)

    def snapshot_due(self, records: Sequence[Record]) -> Snapshot | None:
        """A snapshot of the view after ``records``, the last of all; None if none is due."""
        if self.open_compactions:
            return None  # loading starts after the snapshot, and would not see the open compaction
        last = records[-1]
        since = last.position - self._snapshot
        compacted = any(one.type == "context:post_compact" for one in records)
        if not compacted and since < SNAPSHOT_EVERY:
            return None
        # By the view as it was last folded: a fold after each record would take the longest.
        folded = self._view
        if folded is None or (not compacted and 2 * since < len(folded.layout.refs)):
            return None
        view = self._present()
        if view is None:
            return None
        self._snapshot = last.position
        data = view_snapshot.dump(view)
        return Snapshot(last.position, last.digest, view_snapshot.VERSION, data)


def preview(
    view: ViewState, stream: str, drafts: Sequence[Draft], at: int | None = None
) -> ViewState:
    """The view after ``drafts``, which become the records from position ``at``, else the next ones.

    A draft has no digest before it is stored; folding the request view needs none.
    """
    first = view.position + 1 if at is None else at
    records = [place(draft, stream, at, -1, b"") for at, draft in enumerate(drafts, first)]
    return request_view.evolve_all(view, records)
