"""Waiting: for work that must not be left half done, for a lock, and for foreign code.

Three rules hold here. Work that was begun is finished before a cancellation of its waiter is
raised (``finish``, ``insist``). A lock of a name takes memory only while a task holds it
(``KeyedLock``). Foreign code never blocks its caller for good: it has a time limit, and code that
does not end in time goes on alone (``end_within``, ``within``, ``in_own_thread``).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeVar

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])

POLL: Final = 0.05
"""Seconds between two calls of a ``check`` while its work runs."""

_log = logging.getLogger("eventctx.aio")
_left: set[asyncio.Task[Any]] = set()
"""Cancelled tasks that have not ended: asyncio itself holds tasks by weak references only."""


async def finish(work: Coroutine[Any, Any, T], grace: float | None = None) -> T:
    """Await ``work`` to its end. A cancellation in the meantime is raised after that end.

    So a cancelled caller knows whether the work was done: if it raised, its error is the
    ``__cause__`` of the cancellation, else it was done. With ``grace``, work that goes on for more
    seconds than that after a cancellation is cancelled too.
    """
    task = asyncio.ensure_future(work)
    broken: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=None if broken is None else grace)
            if broken is not None:
                task.cancel()
        except asyncio.CancelledError as error:
            broken = error
    if broken is not None:
        raise broken from (None if task.cancelled() else task.exception())
    return task.result()


async def insist(emit: Callable[[], Awaitable[None]]) -> None:
    """Call and await ``emit()`` again until no cancellation interrupts it; then raise the last one.

    It suits an ``emit`` that waits first and then acts in one go, so that an interrupted call has
    done nothing. It saves the task that ``finish`` makes, for each of thousands of records.
    """
    broken: asyncio.CancelledError | None = None
    while True:
        try:
            await emit()
            break
        except asyncio.CancelledError as error:
            broken = error
    if broken is not None:
        raise broken


class KeyedLock:
    """A lock per name, for tasks of any thread and loop. A name that is free takes no memory.

    ``async with lock(name)`` holds it after all earlier callers have released it. Taking one that
    is free makes no future: it is taken a dozen times for every request of an agent.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Holding] = {}

    def __call__(self, name: str) -> _Holding:
        """Hold ``name`` inside of the ``async with`` block of what is returned."""
        return _Holding(self._held, name)


class _Holding:
    """One caller that holds a name, or waits for it.

    Invariant: a waiter adds itself before it reads ``_released``, and a release sets ``_released``
    before it reads the waiters. At least one side therefore sees the other.
    """

    __slots__ = ("_all", "_name", "_released", "_waiters")

    def __init__(self, held: dict[str, _Holding], name: str) -> None:
        self._all = held
        self._name = name
        self._released = False
        self._waiters: list[Future[None]] = []

    async def __aenter__(self) -> None:
        while (other := self._all.setdefault(self._name, self)) is not self:
            release: Future[None] = Future()
            # A running future cannot be cancelled, so a waiter that gives up harms no release.
            release.set_running_or_notify_cancel()
            other._waiters.append(release)
            if not other._released:
                await asyncio.wait([asyncio.wrap_future(release)])

    async def __aexit__(self, *_: object) -> None:
        del self._all[self._name]
        self._released = True
        for release in self._waiters:
            release.set_result(None)


async def end_within(
    task: asyncio.Task[Any],
    seconds: float | None,
    check: Callable[[], None] | None = None,
    *,
    grace: float,
) -> None:
    """Wait until ``task`` has ended, however it ended; None is no time limit.

    ``check`` is called every ``POLL`` seconds. Raises TimeoutError after ``seconds``, and the error
    of ``check``. In these cases, and when the caller is cancelled, the task is cancelled and given
    ``grace`` seconds to end; after that it goes on alone.
    """
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    try:
        while not task.done():
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                raise TimeoutError(f"it took longer than {seconds:g} s and was ended")
            if check is not None:
                check()
            waits = [one for one in (left, None if check is None else POLL) if one is not None]
            await asyncio.wait({task}, timeout=min(waits, default=None))
    except BaseException:
        task.cancel()
        # A task that ignores its cancellation must hold up neither this turn nor the next one.
        _left.add(task)
        task.add_done_callback(_forget)
        await asyncio.wait({task}, timeout=grace)
        if not task.done():
            _log.warning("%s does not end although it was cancelled; it is left to itself", task)
        raise


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled() and task.exception() is not None:
        _log.debug("%s raised while it was ended", task, exc_info=task.exception())


def within(seconds: float, call: Callable[[], object], name: str) -> bool:
    """Make the call in a thread of its own; false when it is not done after ``seconds``.

    A late call goes on alone, and does not keep the program from ending. Its error is raised here.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()


def run_apart(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Run ``work()`` to its end in a thread and a loop of its own, and do not wait for it.

    The program does not end before it. Nothing is run while the interpreter is ending: the call
    would wait for good for a thread that cannot begin. An error goes to ``threading.excepthook``.
    """
    if not sys.is_finalizing():
        with suppress(RuntimeError):  # no more threads
            Thread(target=lambda: asyncio.run(work()), name=name).start()


async def in_own_thread(function: Callable[[], Any], name: str) -> Any:
    """Call ``function`` in a thread called ``name``, with this task's context variables.

    It is no thread of the event loop's pool: a function that never returns would take one of those
    few threads from the store, and a program cannot end before the threads of the pool do. Raises
    the function's error, but RuntimeError for an exception that would end the program, such as
    SystemExit.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def work() -> None:
        result, raised = None, None
        try:
            result = context.run(function)
        except BaseException as error:
            raised = error
        with suppress(RuntimeError):  # a closed loop: no caller waits for the result
            loop.call_soon_threadsafe(settle, result, raised)

    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    result, raised = await ended
    thread.join()  # it is done, and callers may count threads
    if raised is None:
        return result
    if isinstance(raised, Exception):
        raise raised
    raise RuntimeError(f"it ended with {type(raised).__name__}: {raised}") from raised


class Handle(Protocol):
    """Something open, which its user closes."""

    async def close(self) -> None:
        """Release what it holds."""
        ...


H = TypeVar("H", bound=Handle)


class Opening(Generic[H]):
    """A handle to open: ``async with`` it, or ``await`` it and close the handle yourself.

    Any other use raises an ``error``, which is made of the attribute's name.
    """

    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, H]], error: Callable[[str], Exception]
    ) -> None:
        self._make = make
        self._error = error
        self._handle: H | None = None

    def __await__(self) -> Generator[Any, Any, H]:
        return self._make().__await__()

    if not TYPE_CHECKING:  # a type checker refuses both by itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)
            raise self._error(name)

        def __enter__(self) -> NoReturn:
            raise self._error("with")

        def __exit__(self, *exc: object) -> None:
            """Python looks for it before it calls ``__enter__``."""

    async def __aenter__(self) -> H:
        self._handle = await self._make()
        return self._handle

    async def __aexit__(self, *exc: object) -> None:
        if self._handle is not None:
            await self._handle.close()


class Unawaited(Coroutine[Any, Any, Any]):
    """A coroutine whose other attributes raise an ``error``: Python's own names no remedy.

    All that takes a coroutine takes it: ``await``, ``asyncio.gather``, ``create_task``.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], error: Callable[[str], Exception]
    ) -> None:
        self._coroutine = coroutine
        self._error = error

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """As of a coroutine."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """As of a coroutine."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """As of a coroutine."""
        self._coroutine.close()

    def __getattr__(self, name: str) -> NoReturn:
        # A coroutine's own names, such as ``cr_frame``, are asked for by the loop's debugging.
        if name.startswith(("__", "cr_")):
            raise AttributeError(name)
        self._coroutine.close()  # Python would warn as well, and name no remedy either
        raise self._error(name)


def awaited_first(error: Callable[[str], Exception]) -> Callable[[Method], Method]:
    """Make an async method return an ``Unawaited``; type checkers see the method as it is."""

    def decorated(method: Method) -> Method:
        @wraps(method)
        def called(*arguments: Any, **options: Any) -> Unawaited:
            return Unawaited(method(*arguments, **options), error)

        return called  # type: ignore[return-value]

    return decorated
