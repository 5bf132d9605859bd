"""The append queue: one session's appends under way, in order, with retries behind other writers.

An append is a short synchronous step under a lock: it gives the drafts their positions, hands them
to the store, and notes them in the aggregate. So calls from several tasks and threads keep one
order. Waiting for the disk happens outside of the lock, so many appends share one commit. Each
append expects the last record that this process knows. When another process wrote in between, all
appends under way fail and the queue is *stale*: it reads the session again, and then sends the
drafts that hold whatever others wrote behind the new records. Drafts for one exact version are
dropped; their caller gets the conflict.

Invariant: drafts reach the store in the order in which the queue took them. A draft that is sent
again keeps its id, so a store that already holds it there returns its record instead of a second
one.

The queue does not need the view: where it was let go, an append goes its way all the same, and
``settled`` has the view loaded again. So letting go never breaks a command that is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

import msgspec

from eventctx.errors import EventctxError, ImportedSession, StoreError, WrongExpectedVersion
from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import NO_STREAM, EventStore, Last, last_position
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import Aggregate, Loaded
from eventctx.session.appending import Clock, Listener, PendingAppend, Unsent, asked_of_mirror
from eventctx.session.scope import Scope, scope_of
from eventctx.session.transcript_lines import TranscriptLines

MAX_IN_FLIGHT = 256
"""Activity events that may wait for the disk; the next one waits for the oldest of them."""


def _nobody_counts() -> None:
    """The ``used`` of a session that no engine keeps."""


class AppendQueue:
    """The one way to append to a session in this process. Made by ``repository.open_session``.

    ``head`` is the position of the last record that was handed to the store, -1 for none. ``held``
    is the scope that a host reported, for tasks that are in no turn of their own. ``used`` is
    called after every append and every load, without a lock held.
    """

    def __init__(
        self,
        store: EventStore,
        aggregate: Aggregate,
        loaded: Loaded | None,
        listener: Listener,
        clock: Clock,
        random: Callable[[int], bytes],
        reload: Callable[[int | None], Awaitable[Loaded | None]],
        lines: TranscriptLines,
    ) -> None:
        """``loaded`` is None for a session whose state is read when it is first needed.

        ``reload`` reads it up to a position, or all of it (None).
        """
        self._store = store
        self._aggregate = aggregate
        self._stream = aggregate.stream
        self._listener = listener
        self._clock = clock
        self._random = random
        self._reload = reload
        self._lock = aggregate.lock
        self._lines = lines
        self._in_flight: deque[PendingAppend] = deque()
        self._unsent: list[Unsent] = []
        self._awaited_ids: set[bytes] = set()
        self._time = self._sent_time = 0
        self._appends = 0
        self._stale = True
        self._reload_until: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.head = -1
        self._last_id = b""
        self.held: Scope | None = None
        self.used: Callable[[], None] = _nobody_counts
        if loaded is not None:
            self._install(loaded)

    def _install(self, loaded: Loaded) -> None:
        self.head = loaded.head
        self._last_id = loaded.last_id
        self._time = max(self._time, loaded.time)
        self._sent_time = max(self._sent_time, loaded.time)
        self._stale = False
        self._reload_until = None

    # -- making drafts ---------------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """The running task's scope in this session; outside of turns the one a host reported."""
        scope = scope_of(self._stream)
        return self.held if scope.turn_id is None and self.held is not None else scope

    def draft(self, event: Event, bodies: Sequence[Body] = (), scope: Scope | None = None) -> Draft:
        """Put an event into its envelope, in ``scope`` or the queue's present one.

        Its time is the clock's, never before that of an earlier draft. Raises InvalidSetting for a
        value that the event's payload does not allow.
        """
        name, version, payload = encode_event(event)
        scope = self.scope if scope is None else scope
        self._time = max(self._time, self._clock())
        return Draft(
            self._random(16),
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

    # -- mirrors ---------------------------------------------------------------------------------

    async def writable(self, asked: str) -> None:
        """Raise ImportedSession, with what was ``asked``, if the session mirrors a file."""
        await self.ready()
        if self._aggregate.mirror is not None:
            await self.synchronised()  # another process may have taken it over since
        if self._aggregate.mirror is not None:
            raise ImportedSession(self._stream, self._aggregate.mirror, asked)

    async def _check(self, drafts: Sequence[Draft]) -> None:
        """Raise ImportedSession for drafts that may not be appended: the one place that decides."""
        if self._aggregate.mirror is not None:
            asked = asked_of_mirror(drafts)
            if asked is not None:
                await self.writable(asked)

    # -- appending -------------------------------------------------------------------------------

    async def append(self, *drafts: Draft) -> tuple[Record, ...]:
        """Append drafts that hold whatever others wrote; return when they are on disk.

        Raises ImportedSession for a mirror, as all ways to append do.
        """
        await self.ready()
        await self._check(drafts)
        own = {draft.id for draft in drafts}
        self._awaited_ids |= own
        try:
            pending = None
            while pending is None:
                await self.ready()
                with self._lock:
                    pending = None if self._stale else self._submit(drafts, 0)
            while True:
                try:
                    records = await self._settle(pending)
                except WrongExpectedVersion:
                    pending = await self._sent_again(pending)
                else:
                    return tuple([record for record in records if record.id in own])
        finally:
            self._awaited_ids -= own

    async def _sent_again(self, pending: PendingAppend) -> PendingAppend:
        """Return the append that sends the drafts of ``pending`` again, after a conflict."""
        while pending.again is None:
            await self.ready()
            with self._lock:
                if pending.again is None and not self._stale:
                    self._submit((), 0)
        return pending.again

    async def append_exactly(
        self, version: int, *drafts: Draft, after: ViewState | None = None
    ) -> tuple[Record, ...] | None:
        """Append only if ``version`` is still the last position.

        ``after`` is the view behind the drafts, if the caller has folded them already. Returns
        None when this process appended in between; raises WrongExpectedVersion when another one
        did.
        """
        await self._check(drafts)
        with self._lock:
            if self._stale or self.head != version or self._unsent:
                return None
            pending = self._submit(drafts, len(drafts), after)
        return await self._settle(pending)

    async def emit(self, draft: Draft) -> None:
        """Append an activity event in its place without waiting for the disk.

        If it cannot be written, the next call that waits sends it again, and raises if that fails.
        """
        await self.ready()
        await self._check((draft,))
        while len(self._in_flight) >= MAX_IN_FLIGHT:
            await self._oldest()
        with self._lock:
            if self._stale:
                self._appends += 1
                self._unsent.append(Unsent(self._appends, draft, None))
                return
            pending = self._submit((draft,), 0)
            pending.awaited = False
        self._watch(pending)
        self.used()

    def _watch(self, pending: PendingAppend) -> None:
        task = asyncio.get_running_loop().create_task(self._settle_unwatched(pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _submit(
        self, drafts: Sequence[Draft], exact: int, after: ViewState | None = None
    ) -> PendingAppend:
        self._unsent.sort(key=lambda one: one.number)
        again, self._unsent = self._unsent, []
        sent = self._timed([*[one.draft for one in again], *drafts])
        expected = NO_STREAM if self.head < 0 else Last(self.head, self._last_id)
        ack = self._store.append(self._stream, sent, expected)
        self.head += len(sent)
        self._last_id = sent[-1].id
        self._aggregate.appended(sent, after)
        self._lines.appended(sent, self.head)
        self._appends += 1
        pending = PendingAppend(self._appends, ack, sent, exact)
        for one in again:
            if one.origin is not None:
                one.origin.again = pending
        self._in_flight.append(pending)
        return pending

    def _timed(self, drafts: Sequence[Draft]) -> tuple[Draft, ...]:
        """Keep times from running backwards along the log, also behind another process's."""
        timed: list[Draft] = []
        for draft in drafts:
            if draft.time < self._sent_time:
                draft = msgspec.structs.replace(draft, time=self._sent_time)
            self._sent_time = draft.time
            timed.append(draft)
        return tuple(timed)

    # -- waiting for the disk --------------------------------------------------------------------

    async def _settle(self, pending: PendingAppend) -> tuple[Record, ...]:
        self.used()
        try:
            return await self._ended(pending)
        except asyncio.CancelledError:
            # The append continues without its caller, and its outcome still has to be handled.
            self._watch(pending)
            raise

    async def _settle_unwatched(self, pending: PendingAppend) -> None:
        with contextlib.suppress(EventctxError):
            await self._ended(pending)

    async def _ended(self, pending: PendingAppend) -> tuple[Record, ...]:
        try:
            appended = await pending.ack
        except EventctxError as error:
            with self._lock:
                self._failed(pending, error)
            raise
        publish, timed = self._listener
        with self._lock:
            if timed is not None and pending.awaited and pending.records is None:
                timed(perf_counter() - pending.sent, len(appended.records))
            pending.records = appended.records
            ready: list[Record] = []
            while self._in_flight and self._in_flight[0].records is not None:
                ready.extend(self._in_flight.popleft().records or ())
            self._aggregate.written(ready)
            for record in ready:
                publish(record)
            if ready and not self._in_flight and not self._stale:
                snapshot = self._aggregate.snapshot_due(ready)
                if snapshot is not None:
                    self._store.save_snapshot(self._stream, view_snapshot.NAME, snapshot)
        return appended.records

    def _failed(self, pending: PendingAppend, error: EventctxError) -> None:
        """Remove a failed append and keep the drafts to send again. Later calls do nothing.

        Every task that awaits the append sees it fail; the first one handles it.
        """
        if pending.failed:
            return
        pending.failed = True
        self._stale = True
        self._reload_until = None
        self._lines.failed()
        self._in_flight.remove(pending)
        if not isinstance(error, StoreError):
            return  # a draft that no store accepts is not tried again
        conflict = isinstance(error, WrongExpectedVersion)
        for draft in pending.drafts[: len(pending.drafts) - pending.exact]:
            if conflict or draft.id not in self._awaited_ids:
                origin = pending if conflict else None
                self._unsent.append(Unsent(pending.number, draft, origin))

    # -- staying in step with the store ----------------------------------------------------------

    async def ready(self) -> None:
        """Wait until the queue is not stale: read the session again if another process wrote."""
        while self._stale:
            await self.drained()
            until = self._reload_until
            loaded = await self._reload(until)
            if loaded is None:
                raise StoreError(f"session {self._stream!r} is gone from the store")
            with self._lock:
                if self._stale and not self._in_flight and until == self._reload_until:
                    self._aggregate.install(loaded)
                    self._install(loaded)
            self.used()

    async def drained(self) -> None:
        """Wait until no append is under way. Errors are raised to the callers of the appends."""
        while self._in_flight:
            await self._oldest()

    async def _oldest(self) -> None:
        with self._lock:
            pending = self._in_flight[0] if self._in_flight else None
        if pending is not None:
            try:
                await self._ended(pending)
            except EventctxError:
                return

    async def flushed(self) -> None:
        """Wait until all appends of this process are on disk.

        Raises the error that kept an earlier activity event from being written.
        """
        while True:
            await self.drained()
            with self._lock:
                if self._in_flight:
                    continue
                if not self._unsent:
                    return
            await self.ready()
            with self._lock:
                if self._stale or not self._unsent:
                    continue
                pending = self._submit((), 0)
            with contextlib.suppress(WrongExpectedVersion):
                await self._settle(pending)

    async def settled(self) -> tuple[ViewState, int]:
        """The view and its version, after all appends of this process are on disk.

        Raises the error that kept an earlier activity event from being written.
        """
        while True:
            await self.ready()
            await self.flushed()
            with self._lock:
                if self._stale or self._in_flight or self._unsent:
                    continue
                view = self._aggregate.read()
                if view is not None:
                    return view, self.head
                # Only what was known: what another process wrote is still unseen by the caller.
                self._stale, self._reload_until = True, self.head

    async def synchronised(self) -> tuple[ViewState, int]:
        """As ``settled``, and after all that other processes have written until now."""
        while True:
            view, head = await self.settled()
            if not self._behind(await last_position(self._store, self._stream)):
                self.used()
                return view, head

    async def caught_up(self) -> int:
        """The last position, after all that others wrote and this process acknowledged until now.

        As ``synchronised`` without the view. It waits for appends under way, since another process
        may have their place. Activity events that nothing waits for are not sent for its sake: so
        an answer from memory costs no write.
        """
        while True:
            if self._stale:
                await self.settled()  # it also sends, or raises, what a failure left behind
            if self._in_flight:
                await self.drained()
            last = await last_position(self._store, self._stream)
            with self._lock:
                if not (self._stale or self._in_flight or self._behind(last)):
                    return self.head

    def _behind(self, last: int) -> bool:
        """Whether another process wrote up to ``last``; if so, the session is read again."""
        with self._lock:
            if self.head < last:
                self._stale, self._reload_until = True, None
                return True
            return False

    def renew(self) -> None:
        """Read the session again before its next use: contents of it were destroyed."""
        with self._lock:
            self._stale = True
            self._aggregate.bodies.clear()

    def let_go(self) -> bool:
        """Let the aggregate go, unless something is under way; returns whether nothing was.

        Does not wait: a lock that another thread holds means that the session is in use.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._in_flight or self._unsent or self._aggregate.open_compactions:
                return False
            self._aggregate.let_go()
            return True
        finally:
            self._lock.release()
