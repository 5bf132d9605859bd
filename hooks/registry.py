"""The registry of hooks: observers of records after they were appended.

Promises: observers cannot raise into the publisher; a session's records reach each of them in
order of position; handlers of one record run by priority (lower first), then in order of
registration; a handler gets a record once, however many of its patterns match. Sync handlers run
inline and must be quick. Async handlers queue: at most ``queue_limit`` deliveries per session,
beyond which the newest are dropped and counted. An observer cannot change a record or the append.

pyee's emitter calls the handlers of one event name in order, and has neither wildcards nor
priorities. So the registry resolves patterns to names, and installs a name's listeners, sorted,
when the first record of that name comes. Invariant: an emitter's listeners are never removed. A
change of the subscriptions replaces the emitter (``_reset``), so a thread that is emitting finishes
with the one that it has.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, overload

import msgspec
from pyee.base import EventEmitter

from eventctx.aio import in_own_thread
from eventctx.errors import InvalidSetting, UnknownEventName
from eventctx.hooks.handlers import CALLING, is_async, name_of, new_number, renew_after_fork
from eventctx.hooks.hook_failures import LossKind, LossListener
from eventctx.hooks.lanes import Item, Lanes
from eventctx.log.arguments import check_int, shown
from eventctx.log.events import CATALOGUE, EventPattern
from eventctx.log.record import Record
from eventctx.text import without_password

Observer = Callable[[Record], Any]
"""Sync or async. Its result is ignored, except that an awaitable is awaited."""

MAX_NESTED: Final = 1000
"""Most records that sync handlers may publish while one record is handed out; more are dropped."""

_log = logging.getLogger("eventctx.hooks")
_FAMILIES: Final = sorted({name.partition(":")[0] for name in CATALOGUE})
_PATTERNS: Final = (*CATALOGUE, *(f"{family}:*" for family in _FAMILIES), "*")

H = TypeVar("H", bound=Observer)


class HookStats(msgspec.Struct, frozen=True):
    """Counts by handler name (``module.qualified_name``) since the registry was made.

    ``errors`` includes handlers that were cancelled or took too long. ``dropped`` are deliveries
    that never began: the queue was full, the loop had ended, or the registry was closed.
    """

    delivered: dict[str, int]
    errors: dict[str, int]
    dropped: dict[str, int]


class _Subscription:
    """One handler under one pattern. pyee calls it with a record; it never raises."""

    def __init__(
        self, hooks: Hooks, pattern: str, handler: Observer, priority: int, number: int
    ) -> None:
        self.pattern = pattern
        self.handler = handler
        self.rank = (priority, number)
        self.name = name_of(handler)
        self.is_async = is_async(handler)
        self._hooks = hooks

    def matches(self, name: str) -> bool:
        pattern = self.pattern
        return pattern in ("*", name) or (pattern.endswith(":*") and name.startswith(pattern[:-1]))

    def __call__(self, record: Record) -> None:
        if self.is_async:
            self._queue(record, partial(self.handler, record), self.dropped)
            return
        try:
            result = self.handler(record)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.failed(error)
            return
        if result is not None and inspect.isawaitable(result):

            def discard() -> None:
                getattr(result, "close", int)()
                self.dropped()

            self._queue(record, lambda: result, discard)
        else:
            self._hooks._delivered[self.name] += 1

    def _queue(
        self,
        record: Record,
        start: Callable[[], Awaitable[object]],
        dropped: Callable[[], None],
    ) -> None:
        item = Item(start, self.delivered, self.failed, dropped)
        self._hooks._lanes.put(record.stream, item)

    def delivered(self) -> None:
        self._hooks._delivered[self.name] += 1

    def failed(self, error: BaseException) -> None:
        self._hooks._count_failure(self.name, error)

    def dropped(self) -> None:
        self._hooks._count_drop(self.name, "its session's queue is full, or its loop ended")


class _Nested(threading.local):
    """The records that handlers published in this thread while one was handed out."""

    nested: list[Record] | None = None


class Hooks:
    """Observers of one engine. Safe to publish to from several threads and loops.

    ``queue_limit``: most deliveries that wait for async handlers, per session.
    ``handler_timeout``: seconds after which an async handler is cancelled (None: never); until then
    the session's other async handlers wait for it. Raises InvalidSetting for a ``queue_limit``
    below 1.
    """

    def __init__(self, *, queue_limit: int = 1000, handler_timeout: float | None = 30.0) -> None:
        if queue_limit < 1:
            raise InvalidSetting(f"queue_limit: expected 1 or more, found {queue_limit}")
        self.number = new_number()
        self._subscriptions: list[_Subscription] = []
        self._registered = 0
        self._any = False
        self._closed = False
        self._lanes = Lanes(queue_limit, handler_timeout)
        self._delivered: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._listening: list[tuple[Hashable, LossListener]] = []
        self._notified: tuple[LossListener, ...] = ()
        self._lock = threading.RLock()
        self._local = _Nested()
        self._reset()
        renew_after_fork(self)

    # -- registration ----------------------------------------------------------------------------

    @overload
    def on(
        self, name: EventPattern, handler: None = None, *, priority: int = 0
    ) -> Callable[[H], H]: ...
    @overload
    def on(
        self, name: EventPattern, handler: Observer, *, priority: int = 0
    ) -> Callable[[], None]: ...

    def on(
        self, name: EventPattern, handler: Observer | None = None, *, priority: int = 0
    ) -> Callable[[H], H] | Callable[[], None]:
        """Register an observer of ``name``: an event's name, ``context:*`` or ``*``.

        With a handler, returns a function that unsubscribes it; without, a decorator that leaves
        the function as it is. Registering the same handler again for the same name changes
        nothing. Raises UnknownEventName for a name that no event has, InvalidSetting for a handler
        that cannot be called.
        """
        if name not in _PATTERNS:
            raise UnknownEventName(_unknown(name))
        if handler is None:

            def decorate(function: H) -> H:
                self._subscribe(name, function, priority)
                return function

            return decorate
        return self._subscribe(name, handler, priority)

    def _subscribe(self, name: str, handler: Observer, priority: int) -> Callable[[], None]:
        if not callable(handler):
            raise InvalidSetting(
                f"handler of {name!r}: expected a callable, found {shown(handler)}"
            )
        check_int("priority", priority)
        with self._lock:
            for known in self._subscriptions:
                if known.pattern == name and known.handler == handler:
                    return partial(self._unsubscribe, known)
            self._registered += 1
            added = _Subscription(self, name, handler, priority, self._registered)
            self._subscriptions = sorted((*self._subscriptions, added), key=lambda one: one.rank)
            self._reset()
        return partial(self._unsubscribe, added)

    def _unsubscribe(self, subscription: _Subscription) -> None:
        """Remove a subscription; deliveries in its queue still happen."""
        with self._lock:
            self._subscriptions = [one for one in self._subscriptions if one is not subscription]
            self._reset()

    def _reset(self) -> None:
        """Replace the emitter; a thread that is emitting keeps the one that it has."""
        emitter = EventEmitter()
        # pyee raises out of emit if an "error" has no listener, and recurses if that one raises.
        emitter.add_listener("error", self._count_stray)
        self._routes: tuple[EventEmitter, dict[str, str | None]] = (emitter, {})
        self._any = bool(self._subscriptions) and not self._closed

    def after_fork(self) -> None:
        """In a forked child: take new locks, and leave the queued deliveries to the parent."""
        self._lock = threading.RLock()
        self._local = _Nested()
        self._listening, self._notified = [], ()
        self._lanes.after_fork()

    # -- publishing ------------------------------------------------------------------------------

    def publish(self, record: Record) -> None:
        """Hand an appended record to its observers. Never raises, never waits.

        Call it in order of position, per session. A handler's KeyboardInterrupt or SystemExit does
        reach the caller. A record that a sync handler publishes is handed out after the present
        one.
        """
        if not self._any:
            return
        local = self._local
        nested = local.nested
        if nested is not None:
            nested.append(record)
            return
        nested = local.nested = []
        calling = CALLING
        before, calling.number = calling.number, self.number
        try:
            self._emit(record)
            if nested:
                self._emit_nested(nested)
        finally:
            calling.number = before
            local.nested = None

    def _emit_nested(self, nested: list[Record]) -> None:
        """Hand out what handlers published in answer, and what they publish in answer to that."""
        for at, record in enumerate(nested):  # it may grow meanwhile
            if at < MAX_NESTED:
                self._emit(record)
            else:
                self._count_drop(record.type, f"handlers published over {MAX_NESTED} in answer")

    def _emit(self, record: Record) -> None:
        emitter, keys = self._routes
        name = record.type
        key = keys[name] if name in keys else self._install(emitter, keys, name)
        if key is None:
            return
        try:
            emitter.emit(key, record)
        except Exception as error:
            self._count_stray(error)

    def _install(self, emitter: EventEmitter, keys: dict[str, str | None], name: str) -> str | None:
        """Add the listeners of a name to pyee, sorted, and return its key; None without any."""
        with self._lock:
            if name in keys:
                return keys[name]
            seen: list[Observer] = []
            # The prefix keeps a record's type apart from pyee's own event names.
            key = f"record {name}"
            for one in self._subscriptions:
                if one.matches(name) and one.handler not in seen:
                    seen.append(one.handler)
                    emitter.add_listener(key, one)
            keys[name] = key if seen else None
            return keys[name]

    # -- counting --------------------------------------------------------------------------------

    def stats(self) -> HookStats:
        """The counts of deliveries, errors and drops so far, by handler name."""
        return HookStats(dict(self._delivered), dict(self._errors), dict(self._dropped))

    def on_loss(self, place: Hashable, listener: LossListener) -> Callable[[], None]:
        """Call ``listener`` for every error and drop from here on; returns a function to stop it.

        Of several listeners with an equal ``place`` only one is called, so that a loss is counted
        once.
        """
        entry = (place, listener)

        def stop() -> None:
            with self._lock:
                self._listening = [one for one in self._listening if one is not entry]
                self._notified = tuple(dict(reversed(self._listening)).values())

        with self._lock:
            self._listening.append(entry)
            self._notified = tuple(dict(reversed(self._listening)).values())
        return stop

    def count_error(self, handler: object, error: BaseException) -> None:
        """Count and log an error of a handler that something else than this registry called."""
        self._count_failure(name_of(handler), error)

    def count_lost(self, handler: object, reason: str, count: int = 1) -> None:
        """Count records or spans that a handler accepted and could not pass on."""
        self._count_drop(name_of(handler), reason, count)

    def _count_failure(self, name: str, error: BaseException) -> None:
        with self._lock:
            self._errors[name] += 1
            first = name not in self._warned
            self._warned.add(name)
        self._notify(name, "error", 1)
        problem = "took too long" if isinstance(error, TimeoutError) else "raised"
        with suppress(Exception):
            _log.log(
                logging.WARNING if first else logging.DEBUG,
                "hook %s %s %s; the agent goes on, further errors of it are logged at DEBUG",
                name,
                problem,
                type(error).__name__,
                exc_info=error,
            )

    def _count_drop(self, name: str, reason: str, count: int = 1) -> None:
        with self._lock:
            first = not self._dropped[name]
            self._dropped[name] += count
        self._notify(name, "dropped", count)
        if first:
            with suppress(Exception):
                _log.warning("%d not delivered, hook %s: %s", count, name, without_password(reason))

    def _notify(self, name: str, kind: LossKind, count: int) -> None:
        for listener in self._notified:
            with suppress(Exception):
                listener(name, kind, count)

    def _count_stray(self, error: object) -> None:
        found = error if isinstance(error, BaseException) else RuntimeError(str(error))
        self._count_failure("pyee", found)

    # -- the end ---------------------------------------------------------------------------------

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - a plain wait
        """Wait until every queued delivery is done, also those of records published meanwhile.

        Returns false if ``timeout`` seconds pass first, or if an async handler calls it, which
        would wait for itself.
        """
        return await self._lanes.drain(timeout)

    async def close(self, timeout: float | None = 5.0) -> None:  # noqa: ASYNC109 - a plain wait
        """Drain, then stop: after ``timeout`` seconds, cancel or drop the rest and count it.

        Later records are ignored. May be called again.
        """
        await self.drain(timeout)
        with self._lock:
            self._closed = True
            self._any = False
        # A dropped engine closes while the interpreter ends, when no pool of threads takes work.
        workers = await in_own_thread(self._lanes.stop, "eventctx-hooks-stop")
        loop = asyncio.get_running_loop()
        ours = {worker.task: worker.item for worker in workers if worker.task.get_loop() is loop}
        if ours:
            _, clinging = await asyncio.wait(ours, timeout=1.0)
            for task in clinging:
                item = ours[task]
                if item is not None:
                    item.give_up()


def _unknown(name: object) -> str:
    from difflib import get_close_matches

    near = get_close_matches(str(name), _PATTERNS, n=3, cutoff=0.6)
    if near:
        hint = "did you mean " + " or ".join(repr(one) for one in near) + "?"
    else:
        hint = (
            "the names are those of eventctx.log.events.CATALOGUE, 'context:*' and the like, or '*'"
        )
    return f"there is no event {name!r}: {hint}"
