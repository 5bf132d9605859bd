"""Ordered, bounded delivery to async handlers: one lane per session, one worker per busy lane.

A lane is a session's queue, bound to one event loop; its worker is a task on that loop, which ends
when the lane is empty. So an idle program has no tasks of ours, and a loop that closes finds none
to warn about. A publisher without a loop uses our own loop in a daemon thread. Handlers run in an
empty context: the ids that they need are on the record.

Invariants: a session has at most one lane, and a lane runs one item at a time, so a session's items
are delivered in order. An item is counted once, as delivered, failed or dropped, also if its worker
is cancelled or its loop closes while it is queued; ``_pending`` is the number of items queued or
running. The lock is never held while a handler runs or an item reports its outcome.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import RLock, Thread
from typing import Final, NamedTuple

YIELD_EVERY: Final = 64
"""Deliveries after which a worker yields to the loop, since a handler may never await."""

Job = Callable[[], Awaitable[object]]
Failed = Callable[[BaseException], None]


class Item:
    """One record for one async handler.

    ``start`` makes the awaitable; ``delivered``, ``failed`` and ``dropped`` report its outcome.
    """

    __slots__ = ("delivered", "dropped", "failed", "start")

    def __init__(
        self,
        start: Job,
        delivered: Callable[[], None],
        failed: Failed,
        dropped: Callable[[], None],
    ) -> None:
        self.start = start
        self.delivered = delivered
        self.failed = failed
        self.dropped = dropped

    def give_up(self) -> None:
        """Count the item as failed now, and ignore its outcome later."""
        self.failed(TimeoutError("would not be cancelled"))
        self.delivered = _forget
        self.failed = _forget


def _forget(*_: object) -> None:
    """Ignore an outcome."""


class _Lane:
    __slots__ = ("items", "loop", "running", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.items: deque[Item] = deque()
        self.loop = loop
        self.task: asyncio.Task[None] | None = None
        self.running: Item | None = None


class Worker(NamedTuple):
    """The task of a lane, and the item that it is running."""

    task: asyncio.Task[None]
    item: Item | None


class Lanes:
    """All lanes of one registry. Safe to use from several threads and loops.

    ``limit`` is the most items of one lane; ``timeout`` is the longest time of a handler, in
    seconds. After it the handler is cancelled and counted as failed, so that a handler that hangs
    does not stop its session.
    """

    def __init__(self, limit: int, timeout: float | None) -> None:
        self._limit = limit
        self._timeout = timeout
        self._lanes: dict[str, _Lane] = {}
        self._lock = RLock()
        self._pending = 0
        self._idle: list[Future[None]] = []
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._own_thread: Thread | None = None

    def put(self, session_id: str, item: Item) -> None:
        """Queue an item after the session's others; a full lane drops this newest item."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        full = False
        with self._lock:
            lane = self._lanes.get(session_id)
            orphans = None if lane is None else self._remove_closed(session_id, lane)
            if lane is None or orphans is not None:
                lane = self._lanes[session_id] = _Lane(running or self._fallback())
                self._start(session_id, lane, running)
            if len(lane.items) >= self._limit:
                full = True
            else:
                lane.items.append(item)
                self._pending += 1
        if full:
            item.dropped()
        for orphan in orphans or ():
            orphan.dropped()

    async def drain(self, timeout: float | None) -> bool:  # noqa: ASYNC109 - the caller's choice
        """Wait until nothing is queued or running; false if ``timeout`` seconds pass first.

        False at once if a worker of these lanes calls it, since it would wait for itself.
        """
        with self._lock:
            current = asyncio.current_task()
            if any(lane.task is current for lane in self._lanes.values()):
                return False
            orphans = [
                item
                for session_id, lane in list(self._lanes.items())
                for item in self._remove_closed(session_id, lane) or ()
            ]
            idle: Future[None] = Future()
            if self._pending:
                self._idle.append(idle)
            else:
                idle.set_result(None)
        for item in orphans:
            item.dropped()
        try:
            await asyncio.wait_for(asyncio.wrap_future(idle), timeout)
        except TimeoutError:
            return False
        return True

    def stop(self) -> list[Worker]:
        """Cancel running handlers, drop queued items, end our own thread; returns the workers."""
        with self._lock:
            lanes, self._lanes = list(self._lanes.values()), {}
            dropped = [item for lane in lanes for item in lane.items]
            for lane in lanes:
                lane.items.clear()
            self._settle(len(dropped))
            loop, self._own_loop = self._own_loop, None
            thread, self._own_thread = self._own_thread, None
        for lane in lanes:
            if lane.task is not None and not lane.loop.is_closed():
                lane.loop.call_soon_threadsafe(lane.task.cancel)
        for item in dropped:
            item.dropped()
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=1.0)
        return [Worker(lane.task, lane.running) for lane in lanes if lane.task is not None]

    def after_fork(self) -> None:
        """In a forked child: drop the lanes, which the parent's loops and threads run."""
        self._lock = RLock()
        self._lanes.clear()
        self._idle.clear()
        self._pending = 0
        self._own_loop = self._own_thread = None

    # -- the worker ------------------------------------------------------------------------------

    def _start(
        self, session_id: str, lane: _Lane, running: asyncio.AbstractEventLoop | None
    ) -> None:
        context = contextvars.Context()

        def begin() -> None:
            lane.task = lane.loop.create_task(self._work(session_id, lane), context=context)
            # Not a `finally` in the worker: a task cancelled before it starts never runs its body.
            lane.task.add_done_callback(lambda _: self._drop_rest(session_id, lane))

        if running is lane.loop:
            begin()
        else:
            lane.loop.call_soon_threadsafe(begin)

    async def _work(self, session_id: str, lane: _Lane) -> None:
        handled = 0
        while True:
            with self._lock:
                if not lane.items:
                    if self._lanes.get(session_id) is lane:
                        del self._lanes[session_id]
                    return
                item = lane.running = lane.items.popleft()
            try:
                await self._run(item)
            finally:
                with self._lock:
                    lane.running = None
                    self._settle(1)
            handled += 1
            if handled % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _run(self, item: Item) -> None:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(self._timeout):
                await item.start()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            item.failed(error)
            # A handler may raise a CancelledError of its own; only a cancelled worker must end.
            if task is not None and task.cancelling():
                raise
        else:
            item.delivered()

    def _drop_rest(self, session_id: str, lane: _Lane) -> None:
        """Drop and count the items that a cancelled worker leaves in its lane."""
        with self._lock:
            left = list(lane.items)
            lane.items.clear()
            self._settle(len(left))
            if self._lanes.get(session_id) is lane:
                del self._lanes[session_id]
        for item in left:
            item.dropped()

    def _remove_closed(self, session_id: str, lane: _Lane) -> list[Item] | None:
        """Remove a lane whose loop is closed, and return its items; None if the loop is open.

        Nobody will run these items. The lock is held.
        """
        if not lane.loop.is_closed():
            return None
        if self._lanes.get(session_id) is lane:
            del self._lanes[session_id]
        left = list(lane.items)
        lane.items.clear()
        self._settle(len(left))
        return left

    def _settle(self, count: int) -> None:
        """Count ``count`` items as ended, and wake ``drain`` if none is left; the lock is held."""
        self._pending -= count
        if self._pending == 0 and self._idle:
            waiting, self._idle = self._idle, []
            for idle in waiting:
                if not idle.done():
                    idle.set_result(None)

    def _fallback(self) -> asyncio.AbstractEventLoop:
        """Our own loop, for publishers without one; the lock is held."""
        if self._own_loop is None:
            loop = self._own_loop = asyncio.new_event_loop()

            def run() -> None:
                loop.run_forever()
                for task in asyncio.all_tasks(loop):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        loop.run_until_complete(task)
                loop.close()

            self._own_thread = Thread(target=run, name="eventctx-hooks", daemon=True)
            self._own_thread.start()
        return self._own_loop
