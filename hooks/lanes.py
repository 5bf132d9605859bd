"""Ordered, bounded delivery to async handlers: one lane per session, one worker per busy lane.

A worker is a task that lives only while its lane holds something, so an idle program has no tasks
of ours and a closing loop finds none to complain about. Where no loop runs, one of our own runs in
a daemon thread. Handlers run in an empty context: what identity they need is on the record.
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
"""Deliveries after which a worker lets the loop run, for handlers that never wait themselves."""

Job = Callable[[], Awaitable[object]]
Failed = Callable[[BaseException], None]


class Item:
    """One record for one async handler: ``start`` makes the awaitable, the others report."""

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
        """Count it as failed now; what becomes of it later is not counted again."""
        self.failed(TimeoutError("would not be cancelled"))
        self.delivered = _forget
        self.failed = _forget


def _forget(*_: object) -> None:
    """Take no note of anything."""


class _Lane:
    __slots__ = ("items", "loop", "running", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.items: deque[Item] = deque()
        self.loop = loop
        self.task: asyncio.Task[None] | None = None
        self.running: Item | None = None


class Worker(NamedTuple):
    """What works on a lane, and the item that it is at."""

    task: asyncio.Task[None]
    item: Item | None


class Lanes:
    """All lanes of one registry. Safe to use from several threads and loops.

    ``limit`` is the most that one lane holds; ``timeout`` (seconds) is how long a handler may take
    before it is cancelled and counted as failed, so that one that hangs does not stop its session.
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
        """Queue an item behind the session's others; a full lane drops it, the newest."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        full = False
        with self._lock:
            lane = self._lanes.get(session_id)
            orphans = None if lane is None else self._bury(session_id, lane)
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
        """Wait until nothing is queued or running; false when ``timeout`` seconds passed first."""
        with self._lock:
            current = asyncio.current_task()
            if any(lane.task is current for lane in self._lanes.values()):
                return False
            orphans = [
                item
                for session_id, lane in list(self._lanes.items())
                for item in self._bury(session_id, lane) or ()
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
        """Cancel what still runs, drop what is queued, end our own thread; returns the workers."""
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
        """In a forked child: forget what the parent's loops and threads run."""
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
            # Not a `finally` in the worker: one that is cancelled before it starts has no body.
            lane.task.add_done_callback(lambda _: self._abandon(session_id, lane))

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
            # A handler may raise CancelledError of its own; only the loop's is obeyed.
            if task is not None and task.cancelling():
                raise
        else:
            item.delivered()

    def _abandon(self, session_id: str, lane: _Lane) -> None:
        """Count what a cancelled worker leaves behind."""
        with self._lock:
            left = list(lane.items)
            lane.items.clear()
            self._settle(len(left))
            if self._lanes.get(session_id) is lane:
                del self._lanes[session_id]
        for item in left:
            item.dropped()

    def _bury(self, session_id: str, lane: _Lane) -> list[Item] | None:
        """Take out a lane whose loop ended under it; nobody will run its items. Lock held."""
        if not lane.loop.is_closed():
            return None
        if self._lanes.get(session_id) is lane:
            del self._lanes[session_id]
        left = list(lane.items)
        lane.items.clear()
        self._settle(len(left))
        return left

    def _settle(self, count: int) -> None:
        """Note that ``count`` items are done with; the lock is held."""
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
