"""The append queue: all appends of one session in this process, in one order.

Invariant: drafts reach the store in the order in which the queue took them, each of them once. A
draft that is sent again keeps its id, so a store that already holds it returns the stored record.

An append is a short synchronous step under a lock: it gives the drafts their positions, hands them
to the store, and notes them in the aggregate. So calls from several tasks and threads keep one
order. Waiting for the disk happens outside the lock, so many appends share one commit.

Activity events are *deferred*: they get their positions at once, and go to the store with the next
append that a caller waits for, which saves a commit for each. Without such an append they go after
``IDLE_SECONDS``, or when the session is closed. A crash loses the events that are still deferred.

Each append expects the last record that this process knows. When another process wrote in between,
all appends under way fail and the queue is *stale*. It reads the session again, and then sends the
drafts that hold whatever others wrote, after the new records. It drops drafts for one exact
version; their caller gets the conflict.

The queue does not need the view. An append to an evicted session goes to the store as ever, and
``settle`` loads the view again. So eviction never breaks a command that is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import perf_counter
from typing import Final

from eventctx.aio import finish
from eventctx.errors import EventctxError, ImportedSession, StoreError, WrongExpectedVersion
from eventctx.log.record import Draft, Record
from eventctx.log.store import NO_STREAM, EventStore, Last, last_position
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import Aggregate, Loaded
from eventctx.session.contents import TranscriptLines
from eventctx.session.pending import (
    FLUSHING,
    MAX_DEFERRED,
    Idle,
    Listener,
    PendingAppend,
    Unsent,
    asked_of_mirror,
    forget_deferring,
    note_deferring,
)
from eventctx.session.scope import Drafts

MAX_IN_FLIGHT: Final = 16
"""Appends that may wait for the disk; then ``emit`` waits for the oldest of them."""


def _ignore_use() -> None:
    """No-op usage callback, for a session that no engine keeps."""


def _is_in_view(one: Unsent) -> bool:
    """Whether a view may show the contents of a draft, which are not on disk."""
    return bool(one.draft.bodies) and one.draft.type.startswith("context:")


class AppendQueue:
    """The one way to append to a session in this process. Made by ``repository.open_session``.

    ``head`` is the last position that a draft was given, -1 for none. ``used`` is called after each
    append and every load, without a lock held.
    """

    def __init__(
        self,
        store: EventStore,
        aggregate: Aggregate,
        loaded: Loaded | None,
        listener: Listener,
        drafts: Drafts,
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
        self._drafts = drafts
        self._reload = reload
        self._lock = aggregate.lock
        self._lines = lines
        self._in_flight: deque[PendingAppend] = deque()
        self._unsent: list[Unsent] = []
        self._idle = Idle(self._idle_timeout)
        self._awaited_ids: set[bytes] = set()
        self._appends = 0
        self._stale = True
        self._reload_until: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.head = -1
        self._last_id = b""
        self.used: Callable[[], None] = _ignore_use
        if loaded is not None:
            self._install(loaded)

    def _install(self, loaded: Loaded) -> None:
        self.head = loaded.head
        self._last_id = loaded.last_id
        self._drafts.follow(loaded.time)
        self._stale = False
        self._reload_until = None
        self._unsent.sort(key=lambda one: one.number)
        again, self._unsent = self._unsent, []
        for one in again:
            self._defer(one)

    @property
    def last_sent(self) -> int:
        """The last position that was handed to the store."""
        return self.head - len(self._unsent)

    # -- mirrors: sessions that an import alone changes -------------------------------------------

    async def writable(self, asked: str) -> None:
        """Raise ImportedSession, with what was ``asked``, if the session mirrors a file."""
        await self.ready()
        if self._aggregate.mirror is not None:
            await self.synchronise()  # another process may have taken it over since
        if self._aggregate.mirror is not None:
            raise ImportedSession(self._stream, self._aggregate.mirror, asked)

    async def _check(self, drafts: Sequence[Draft]) -> None:
        """Raise ImportedSession for drafts that a mirror does not take. Decided nowhere else."""
        if self._aggregate.mirror is not None:
            asked = asked_of_mirror(drafts)
            if asked is not None:
                await self.writable(asked)

    # -- appending -------------------------------------------------------------------------------

    async def append(self, *drafts: Draft) -> tuple[Record, ...]:
        """Append drafts that hold whatever others wrote; return when they are on disk.

        Raises ImportedSession for a mirror, as all ways to append do.
        """
        appended = await self.deliver(*drafts)
        own = {draft.id for draft in drafts}
        return tuple([record for record in appended.records or () if record.id in own])

    async def deliver(self, *drafts: Draft) -> PendingAppend:
        """As ``append``; returns the append that brought the drafts to the disk, with others."""
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
                    await self._settle(pending)
                except WrongExpectedVersion:
                    pending = await self._sent_again(pending)
                else:
                    return pending
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
        self,
        version: int,
        *drafts: Draft,
        after: ViewState | None = None,
        then: Callable[[], None] | None = None,
    ) -> tuple[Record, ...] | None:
        """Append only if ``version`` is still the last position.

        ``after`` is the view after the drafts, if the caller has folded them already. Returns the
        records of the drafts, or None when this process appended in between; raises
        WrongExpectedVersion when another one did. ``then`` is called when they are on disk; with
        it, a cancellation is raised only when that is known.
        """
        await self._check(drafts)
        with self._lock:
            if self._stale or self.head != version:
                return None
            pending = self._submit(drafts, len(drafts), after)
            pending.then = then
        try:
            return (await self._settle(pending))[-len(drafts) :]
        except asyncio.CancelledError:
            if then is not None:
                await finish(self.drain())
            raise

    async def emit(self, draft: Draft) -> None:
        """Append an activity event in its place, deferred: without waiting for the disk.

        If it cannot be written, the next append that a caller waits for sends it again, and raises
        if that fails. One that is cancelled has appended nothing: what waits comes first.
        """
        await self.ready()
        await self._check((draft,))
        while len(self._in_flight) >= MAX_IN_FLIGHT:
            await self._oldest()
        self.note(draft)

    def note(self, draft: Draft) -> None:
        """As ``emit``, at once, for a session that was written to before."""
        mirrored = self._aggregate.mirror
        asked = None if mirrored is None else asked_of_mirror((draft,))
        if mirrored is not None and asked is not None:
            raise ImportedSession(self._stream, mirrored, asked)
        with self._lock:
            first = not self._unsent
            self._appends += 1
            one = Unsent(self._appends, draft, None)
            if self._stale:
                self._unsent.append(one)
                note_deferring(self)
            else:
                self._defer(one)
            flushes = draft.type in FLUSHING or len(self._unsent) > MAX_DEFERRED
            pending = self._submit((), 0) if flushes and not self._stale else None
        if pending is None:
            self._idle.set()
        else:
            self._watch(pending)
        if first:
            self.used()

    def _defer(self, one: Unsent) -> None:
        if not self._unsent:
            self._idle.start()
            note_deferring(self)
        one = one._replace(draft=self._drafts.placed(one.draft))
        self._unsent.append(one)
        self.head += 1
        self._aggregate.note_appended((one.draft,))

    def _submit(
        self, drafts: Sequence[Draft], exact: int, after: ViewState | None = None
    ) -> PendingAppend:
        deferred, self._unsent = self._unsent, []
        if deferred:
            forget_deferring(self)
        own = [self._drafts.placed(draft) for draft in drafts]
        sent = (*[one.draft for one in deferred], *own)
        last = self.head - len(deferred)
        expected = NO_STREAM if last < 0 else Last(last, self._last_id)
        ack = self._store.append(self._stream, sent, expected)
        self.head += len(own)
        self._last_id = sent[-1].id
        self._aggregate.note_appended(own, after)
        self._lines.note_appended(sent, self.head)
        self._appends += 1
        next_number = self._aggregate.next_number
        pending = PendingAppend(self._appends, ack, sent, exact, after, next_number)
        for one in deferred:
            if one.origin is not None:
                one.origin.again = pending
        self._in_flight.append(pending)
        return pending

    # -- sending deferred events -----------------------------------------------------------------

    def _idle_timeout(self) -> None:
        if self._unsent:
            self._keep(self._flush_unwatched())

    async def _flush_unwatched(self) -> None:
        with contextlib.suppress(EventctxError):
            await self.flush()

    def appends_to(self, store: EventStore, stream: str | None = None) -> bool:
        """As ``DeferringQueue.appends_to``."""
        return store is self._store and stream in (None, self._stream)

    def send(self) -> None:
        """As ``DeferringQueue.send``. Callable from any thread."""
        with self._lock:
            pending = self._submit((), 0) if self._unsent and not self._stale else None
        if pending is not None:
            self._watch(pending)

    # -- waiting for the disk --------------------------------------------------------------------

    async def _settle(self, pending: PendingAppend) -> tuple[Record, ...]:
        self.used()
        try:
            return await self._await_end(pending)
        except asyncio.CancelledError:
            # The append continues without its caller, and its outcome still has to be handled. A
            # task of the queue itself is cancelled by a loop that ends, and runs no more tasks.
            if asyncio.current_task() not in self._tasks:
                self._watch(pending)
            raise

    def _watch(self, pending: PendingAppend) -> None:
        """Handle the outcome of an append without a caller."""
        pending.awaited = False
        self._keep(self._settle_unwatched(pending))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        try:
            task = asyncio.get_running_loop().create_task(work)
        except RuntimeError:  # no loop: the next call that waits does the work
            work.close()
            return
        # asyncio itself holds tasks by weak references only.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle_unwatched(self, pending: PendingAppend) -> None:
        with contextlib.suppress(EventctxError):
            await self._await_end(pending)

    async def _await_end(self, pending: PendingAppend) -> tuple[Record, ...]:
        try:
            appended = await pending.ack
        except EventctxError as error:
            with self._lock:
                self._take_back(pending, error)
            raise
        publish, timed, lend = self._listener
        with self._lock:
            if pending.records is None:
                pending.records = appended.records  # also if what follows raises: it is on disk
                if timed is not None and pending.awaited:
                    timed(perf_counter() - pending.submitted, len(appended.records))
                if pending.then is not None:
                    pending.then()
            done: list[PendingAppend] = []
            while self._in_flight and self._in_flight[0].records is not None:
                done.append(self._in_flight.popleft())
            ready = [record for one in done for record in one.records or ()]
            self._aggregate.note_written(ready)
            for one in done:
                if lend is not None and one.after is not None:
                    lend(self._stream, one.after)
                for record in one.records or ():
                    publish(record)
            if ready and ready[-1].position == self.head and not self._stale:
                snapshot = self._aggregate.snapshot_due(ready)
                if snapshot is not None:
                    self._store.save_snapshot(self._stream, view_snapshot.NAME, snapshot)
        return appended.records

    def _take_back(self, pending: PendingAppend, error: EventctxError) -> None:
        """Remove a failed append and keep the drafts to send again. Later calls do nothing.

        Every task that awaits the append sees it fail; the first one handles it.
        """
        if pending.failed:
            return
        pending.failed = True
        self._stale = True
        self._reload_until = None
        self._lines.forget()
        self._in_flight.remove(pending)
        if not isinstance(error, StoreError):
            return  # a draft that no store accepts is not tried again
        conflict = isinstance(error, WrongExpectedVersion)
        for draft in pending.drafts[: len(pending.drafts) - pending.exact]:
            if conflict or draft.id not in self._awaited_ids:
                origin = pending if conflict else None
                self._unsent.append(Unsent(pending.number, draft, origin))
        if self._unsent:
            note_deferring(self)
            if conflict:
                self._idle.set()  # no caller may be left to resend them

    # -- staying in step with the store ----------------------------------------------------------

    async def ready(self) -> None:
        """Wait until the queue is not stale: read the session again if another process wrote."""
        while self._stale:
            await self.drain()
            until = self._reload_until
            loaded = await self._reload(until)
            if loaded is None:
                raise StoreError(f"session {self._stream!r} is gone from the store")
            with self._lock:
                if self._stale and not self._in_flight and until == self._reload_until:
                    self._aggregate.install(loaded)
                    self._install(loaded)
            self.used()

    async def drain(self) -> None:
        """Wait until no append is under way. Errors are raised to the callers of the appends."""
        while self._in_flight:
            await self._oldest()

    async def _oldest(self) -> None:
        with self._lock:
            pending = self._in_flight[0] if self._in_flight else None
        if pending is not None:
            try:
                await self._await_end(pending)
            except EventctxError:
                return

    async def flush(self) -> None:
        """Wait until all appends of this process are on disk.

        Raises the error that kept an earlier activity event from being written.
        """
        while True:
            await self.drain()
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
                pending.awaited = False
            with contextlib.suppress(WrongExpectedVersion):
                await self._settle(pending)

    async def settle(self) -> tuple[ViewState, int]:
        """The view and its version, with deferred events, after all other appends are on disk.

        Every body in the view is on disk, so no other process can take its position, and reading
        it fails for damage alone.
        """
        while True:
            await self.ready()
            await self.drain()
            with self._lock:
                if self._stale or self._in_flight:
                    continue
                # A conflict defers messages, too, whose positions another process may take again.
                pending = self._submit((), 0) if any(map(_is_in_view, self._unsent)) else None
                view = self._aggregate.read() if pending is None else None
                if view is not None:
                    return view, self.head
                if pending is None:
                    # Up to the known head only: the caller has not seen what another one wrote.
                    self._stale, self._reload_until = True, self.last_sent
                    continue
                pending.awaited = False
            with contextlib.suppress(WrongExpectedVersion):
                await self._settle(pending)

    async def synchronise(self) -> tuple[ViewState, int]:
        """As ``settle``, and after all that other processes have written until now."""
        while True:
            view, head = await self.settle()
            if not self._behind(await last_position(self._store, self._stream)):
                self.used()
                return view, head

    async def catch_up(self) -> int:
        """The last position in the store, after all that was written until now.

        As ``synchronise`` without the view. It waits for appends under way, since another process
        may have their place, but does not send deferred events: an answer from memory costs no
        write.
        """
        while True:
            if self._stale:
                await self.settle()
            if self._in_flight:
                await self.drain()
            last = await last_position(self._store, self._stream)
            with self._lock:
                if not (self._stale or self._in_flight or self._behind(last)):
                    return self.last_sent

    def _behind(self, last: int) -> bool:
        """Whether another process wrote up to ``last``; if so, the session is read again."""
        with self._lock:
            if self.last_sent < last:
                self._stale, self._reload_until = True, None
                if self._unsent:
                    self._lines.forget()
                return True
            return False

    def renew(self) -> None:
        """Read the session again before its next use, since contents of it were destroyed."""
        with self._lock:
            self._stale = True
            self._aggregate.bodies.clear()

    def evict(self) -> bool:
        """Evict the aggregate and return True; return False while something is under way.

        Does not wait: a lock that another thread holds means that the session is in use.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._in_flight or self._unsent or self._aggregate.open_compactions:
                return False
            self._aggregate.evict()
            return True
        finally:
            self._lock.release()
