"""The live object of a session: its view, folded as it grows, and the one way to append to it.

Appending is a short synchronous step under a lock (give the drafts their positions, hand them to
the store, fold them), so calls from several tasks and threads keep one order and share commits;
waiting for the disk happens outside. What this process folded ahead of the disk is thrown away
and read again when another process turns out to have written in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter, perf_counter_ns
from typing import NamedTuple, Protocol

import msgspec

from eventctx.errors import EventctxError, StoreError, WrongExpectedVersion
from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.record import Body, Draft, Record, place
from eventctx.log.store import NO_STREAM, Address, Appended, EventStore, Last, Snapshot
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.request_view import ViewState
from eventctx.session.loading import SNAPSHOT, Loaded, load
from eventctx.session.scope import Scope, scope_of

SNAPSHOT_EVERY = 256
"""Records between snapshots, at least; more when the view is large, so that cost stays flat."""

MAX_UNFOLDED = 32
"""Records whose fold may be put off until somebody looks at the view."""

MAX_CACHED = 32 * 2**20
"""Bytes of bodies kept in memory; beyond that they are fetched again when a view shows them."""

MAX_IN_FLIGHT = 256
"""Activity events that may wait for the disk; the next one waits for the oldest of them."""


class Clock(Protocol):
    """Where times come from: UTC nanoseconds."""

    def __call__(self) -> int:
        """The time now."""
        ...


class Listener(NamedTuple):
    """Who hears of appends: of each record in order, and of the time that callers waited for."""

    publish: Callable[[Record], None]
    appended: Callable[[float, int], None] | None = None


class PendingAppend:
    """An append under way. ``records`` is set when it is on disk.

    ``exact`` drafts hold for one version alone and are dropped on a conflict. All others are sent
    again behind what the other process wrote; ``again`` is then the append that carries them.
    """

    __slots__ = (
        *("ack", "again", "awaited", "drafts", "exact", "failed", "number", "records", "sent"),
    )

    def __init__(
        self, number: int, ack: Awaitable[Appended], drafts: tuple[Draft, ...], exact: int
    ) -> None:
        self.number = number
        self.ack = ack
        self.drafts = drafts
        self.exact = exact
        self.records: tuple[Record, ...] | None = None
        self.failed = False
        self.again: PendingAppend | None = None
        self.awaited = True
        self.sent = perf_counter()


class Unsent(NamedTuple):
    """A draft that waits to be sent again, in the order in which it was first sent."""

    number: int
    draft: Draft
    origin: PendingAppend | None


class LiveSession:
    """One session in this process. Made by ``open_session``; used by the context manager."""

    def __init__(
        self,
        store: EventStore,
        stream: str,
        loaded: Loaded,
        listener: Listener,
        clock: Clock,
        random: Callable[[int], bytes] = os.urandom,
        tokenizer: Callable[[str], int] | None = None,
    ) -> None:
        self.store = store
        self.stream = stream
        self.random = random
        self.tokenizer = tokenizer
        self._listener = listener
        self._clock = clock
        self.stopwatch: Callable[[], int] = getattr(clock, "stopwatch", perf_counter_ns)
        self._lock = threading.RLock()
        self._in_flight: deque[PendingAppend] = deque()
        self._unsent: list[Unsent] = []
        self._asked: set[bytes] = set()
        self._time = self._sent_time = 0
        self._last_id = b""
        self._tickets = 0
        self._unfolded: list[Draft] = []
        self._stale = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.cache: dict[tuple[int, int], bytes | None] = {}
        self._cached = 0
        self.held: Scope | None = None
        self._install(loaded)

    def _install(self, loaded: Loaded) -> None:
        self._view = loaded.view
        self._unfolded.clear()
        self.head = loaded.head
        self._time = max(self._time, loaded.time)
        self._sent_time = max(self._sent_time, loaded.time)
        self._last_id = loaded.last_id
        self._snapshot = loaded.snapshot
        self.open_compactions = {record.span_id for record in loaded.open_compactions}
        self.cache, self._cached = {}, 0
        self._stale = False

    @property
    def view(self) -> ViewState:
        """The view after everything that was handed to the store."""
        with self._lock:
            if self._unfolded:
                self._fold()
            return self._view

    @property
    def scope(self) -> Scope:
        """Where the running task is in this session, else where a host said that it is."""
        scope = scope_of(self.stream)
        return self.held if scope.turn_id is None and self.held is not None else scope

    # -- making drafts ---------------------------------------------------------------------------

    def draft(self, event: Event, scope: Scope, bodies: Sequence[Body] = ()) -> Draft:
        """Put an event into its envelope, with the clock's time, never before the last one's."""
        name, version, payload = encode_event(event)
        self._time = max(self._time, self._clock())
        return Draft(
            self.random(16),
            name,
            version,
            self._time,
            payload,
            tuple(bodies),
            scope.turn_id,
            scope.span_id,
            scope.parent_span_id,
            scope.iteration,
        )

    # -- appending -------------------------------------------------------------------------------

    async def append(self, *drafts: Draft) -> tuple[Record, ...]:
        """Append what is right whatever others wrote in between; returns when it is on disk."""
        own = {draft.id for draft in drafts}
        self._asked |= own
        try:
            ticket = None
            while ticket is None:
                await self.ready()
                with self._lock:
                    ticket = None if self._stale else self._submit(drafts, 0)
            while True:
                try:
                    records = await self._settle(ticket)
                except WrongExpectedVersion:
                    ticket = await self._sent_again(ticket)
                else:
                    return tuple([record for record in records if record.id in own])
        finally:
            self._asked -= own

    async def _sent_again(self, ticket: PendingAppend) -> PendingAppend:
        """The append that carries the drafts of one that met a conflict."""
        while ticket.again is None:
            await self.ready()
            with self._lock:
                if ticket.again is None and not self._stale:
                    self._submit((), 0)
        return ticket.again

    async def append_exactly(
        self, version: int, *drafts: Draft, after: ViewState | None = None
    ) -> tuple[Record, ...] | None:
        """Append only if ``version`` is still the last position.

        ``after`` is the view behind the drafts, if the caller has folded them already. None when
        this process appended in between; WrongExpectedVersion when another one did.
        """
        with self._lock:
            if self._stale or self.head != version or self._unsent:
                return None
            ticket = self._submit(drafts, len(drafts))
            if after is not None and len(self._unfolded) == len(drafts):
                self._folded(after, drafts)
        return await self._settle(ticket)

    async def emit(self, draft: Draft) -> None:
        """Append an activity event in its place without waiting for the disk.

        If it cannot be written, the next call that waits sends it again, and raises if it must.
        """
        await self.ready()
        while len(self._in_flight) >= MAX_IN_FLIGHT:
            await self._oldest()
        with self._lock:
            if self._stale:
                self._tickets += 1
                self._unsent.append(Unsent(self._tickets, draft, None))
                return
            ticket = self._submit((draft,), 0)
            ticket.awaited = False
        self._watch(ticket)

    def _watch(self, ticket: PendingAppend) -> None:
        task = asyncio.get_running_loop().create_task(self._settle_unasked(ticket))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _submit(self, drafts: Sequence[Draft], exact: int) -> PendingAppend:
        self._unsent.sort(key=lambda one: one.number)
        again, self._unsent = self._unsent, []
        sent = self._timed([*[one.draft for one in again], *drafts])
        expected = NO_STREAM if self.head < 0 else Last(self.head, self._last_id)
        ack = self.store.append(self.stream, sent, expected)
        self.head += len(sent)
        self._last_id = sent[-1].id
        # Folding now would keep the store's thread from starting: it waits until it is needed.
        self._unfolded.extend(sent)
        if len(self._unfolded) > MAX_UNFOLDED:
            self._fold()
        self._tickets += 1
        ticket = PendingAppend(self._tickets, ack, sent, exact)
        for one in again:
            if one.origin is not None:
                one.origin.again = ticket
        self._in_flight.append(ticket)
        return ticket

    def _timed(self, drafts: Sequence[Draft]) -> tuple[Draft, ...]:
        """Keep times from running backwards along the log, also behind another process's."""
        timed: list[Draft] = []
        for draft in drafts:
            if draft.time < self._sent_time:
                draft = msgspec.structs.replace(draft, time=self._sent_time)
            self._sent_time = draft.time
            timed.append(draft)
        return tuple(timed)

    def _fold(self) -> None:
        view = self._view
        for draft in self._unfolded:
            position = view.position + 1
            view = request_view.evolve(view, place(draft, self.stream, position, -1, b""))
        self._folded(view, self._unfolded)

    def _folded(self, view: ViewState, drafts: Sequence[Draft]) -> None:
        cache = self.cache
        for position, draft in enumerate(drafts, start=view.position + 1 - len(drafts)):
            for index, body in enumerate(draft.bodies):
                cache[position, index] = body.data
                self._cached += len(body.data or b"")
        self._view = view
        self._unfolded.clear()
        if self._cached > MAX_CACHED:
            self.cache, self._cached = {}, 0

    async def _settle(self, ticket: PendingAppend) -> tuple[Record, ...]:
        try:
            return await self._ended(ticket)
        except asyncio.CancelledError:
            # The append goes on without its caller; somebody has to see how it ends.
            self._watch(ticket)
            raise

    async def _settle_unasked(self, ticket: PendingAppend) -> None:
        with contextlib.suppress(EventctxError):
            await self._ended(ticket)

    async def _ended(self, ticket: PendingAppend) -> tuple[Record, ...]:
        try:
            appended = await ticket.ack
        except EventctxError as error:
            with self._lock:
                self._failed(ticket, error)
            raise
        publish, timed = self._listener
        with self._lock:
            if timed is not None and ticket.awaited and ticket.records is None:
                timed(perf_counter() - ticket.sent, len(appended.records))
            ticket.records = appended.records
            ready: list[Record] = []
            while self._in_flight and self._in_flight[0].records is not None:
                ready.extend(self._in_flight.popleft().records or ())
            for record in ready:
                self._note(record)
                publish(record)
            if ready and not self._in_flight and not self._stale:
                self._maybe_snapshot(ready)
        return appended.records

    def _failed(self, ticket: PendingAppend, error: EventctxError) -> None:
        """Take a failed append out, once, whoever sees it first; keep what is to be sent again."""
        if ticket.failed:
            return
        ticket.failed = True
        self._stale = True
        self._in_flight.remove(ticket)
        if not isinstance(error, StoreError):
            return  # what can never be stored is not tried again
        conflict = isinstance(error, WrongExpectedVersion)
        for draft in ticket.drafts[: len(ticket.drafts) - ticket.exact]:
            if conflict or draft.id not in self._asked:
                self._unsent.append(Unsent(ticket.number, draft, ticket if conflict else None))

    # -- staying in step with the store ----------------------------------------------------------

    async def ready(self) -> None:
        """Wait until the view is sound: read again what another writer made obsolete."""
        while self._stale:
            await self.drained()
            loaded = await load(self.store, self.stream)
            if loaded is None:
                raise StoreError(f"session {self.stream!r} is gone from the store")
            with self._lock:
                if self._stale and not self._in_flight:
                    self._install(loaded)

    async def drained(self) -> None:
        """Wait until nothing is under way. Errors are left to those who wait for them."""
        while self._in_flight:
            await self._oldest()

    async def _oldest(self) -> None:
        with self._lock:
            ticket = self._in_flight[0] if self._in_flight else None
        if ticket is not None:
            try:
                await self._ended(ticket)
            except EventctxError:
                return

    async def settled(self) -> tuple[ViewState, int]:
        """The view and its version after everything of this process that was under way.

        Raises what kept an earlier activity event from being written.
        """
        while True:
            await self.ready()
            await self.drained()
            with self._lock:
                if self._stale or self._in_flight:
                    continue
                if not self._unsent:
                    return self.view, self.head
                ticket = self._submit((), 0)
            try:
                await self._settle(ticket)
            except WrongExpectedVersion:
                continue

    async def synchronised(self) -> tuple[ViewState, int]:
        """As ``settled``, and after what other processes wrote until now."""
        while True:
            view, head = await self.settled()
            info = await self.store.head(self.stream)
            if info is None or info.head <= head:
                return view, head
            with self._lock:
                self._stale = self._stale or self.head < info.head

    async def texts(self, wanted: Sequence[Address]) -> dict[tuple[int, int], bytes | None]:
        """Stored bytes by address; what is not in memory is fetched in one call."""
        # A conflict puts a new cache in place while bodies are fetched; this one stays whole.
        cache = self.cache
        missing = [address for address in wanted if address not in cache]
        if missing:
            found = await self.store.bodies(self.stream, missing)
            for address, body in zip(missing, found, strict=True):
                cache[address] = body.data
        return cache

    def trim(self, wanted: Sequence[Address]) -> None:
        """Forget bodies that the view no longer shows."""
        if len(self.cache) > 2 * len(wanted) + 64:
            self.cache = {place: self.cache[place] for place in wanted if place in self.cache}

    def _note(self, record: Record) -> None:
        if record.type == "context:pre_compact":
            self.open_compactions.add(record.span_id)
        elif record.type == "context:post_compact":
            self.open_compactions.discard(record.span_id)

    def _maybe_snapshot(self, records: Sequence[Record]) -> None:
        if self.open_compactions:
            return  # behind a snapshot nobody would see that a compaction was left open
        record = records[-1]
        since = record.position - self._snapshot
        compacted = any(one.type == "context:post_compact" for one in records)
        if compacted or (since >= SNAPSHOT_EVERY and since >= len(self.view.layout.refs)):
            self.save_snapshot(record)

    def save_snapshot(self, record: Record) -> None:
        """Keep the view at ``record``, which must be the last one."""
        self._snapshot = record.position
        data = view_snapshot.dump(self.view)
        snapshot = Snapshot(record.position, record.digest, view_snapshot.VERSION, data)
        self.store.save_snapshot(self.stream, SNAPSHOT, snapshot)
