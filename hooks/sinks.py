"""What a sink is to an engine: an observer of all records that may do more than observe.

``eventctx.open(sinks=[LogSink(), TraceSink(), MetricsSink()])`` subscribes each to every record,
and asks for the rest by these protocols: a sink implements those that it has a use for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import Final, Literal, Protocol, runtime_checkable

from eventctx.hooks.per_session import CALLING
from eventctx.hooks.registry import Hooks
from eventctx.log.ids import CurrentSpan
from eventctx.log.record import Record

History = Literal["none", "records", "contents"]
CLOSE_TIMEOUT: Final = 10.0
"""Seconds that the sinks of an engine have, all together, to emit what they hold back."""

_NEEDS: Final[tuple[History, ...]] = ("none", "records", "contents")


class Sink(Protocol):
    """An observer of all records: sync, quick, from any thread."""

    def __call__(self, record: Record) -> None:
        """Take a record that was appended."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A sink that folds: it has to know a session's history before it hears what comes next."""

    def resume(self, records: Iterable[Record]) -> None:
        """Fold a session's records from its beginning, in place of what was known of it.

        Nothing is emitted. Of a fork come what it inherits, and its own records.
        """
        ...

    def history(self) -> History:
        """What it needs of a session that is opened again, as things stand."""
        ...


@runtime_checkable
class Attached(Protocol):
    """A sink that has something to ask or tell the registry that it hangs on."""

    def attach(self, hooks: Hooks) -> None:
        """Be told the registry before its first record. One sink may serve several engines."""
        ...

    def detach(self, hooks: Hooks) -> None:
        """Be told that nothing more will come of it: the time to emit what was held back."""
        ...


@runtime_checkable
class Timing(Protocol):
    """A sink that wants to know how long appends take."""

    def appended(self, seconds: float, records: int) -> None:
        """Take the time from handing ``records`` records to the store until they were stored."""
        ...


class Sinks:
    """The sinks of one engine, subscribed to its registry; none of them can hurt it."""

    def __init__(self, sinks: Sequence[Sink], hooks: Hooks) -> None:
        self._sinks = tuple(sinks)
        self._hooks = hooks
        self._resuming = [sink for sink in self._sinks if isinstance(sink, Resuming)]
        self._timing = [sink for sink in self._sinks if isinstance(sink, Timing)]
        for sink in self._sinks:
            if isinstance(sink, Attached):
                try:
                    sink.attach(hooks)
                except Exception as error:
                    hooks.count_error(sink, error)
            hooks.on("*", sink)

    @property
    def current_span(self) -> CurrentSpan | None:
        """The first of them that can make a span the host's current one."""
        for sink in self._sinks:
            if isinstance(sink, CurrentSpan):
                return sink
        return None

    def history(self) -> History:
        """The most that any of them needs of a session that is opened again."""
        return max(map(self._needed, self._resuming), key=_NEEDS.index, default="none")

    def _needed(self, sink: Resuming) -> History:
        try:
            return sink.history()
        except Exception as error:  # as of a host's provider that it asks
            self._hooks.count_error(sink, error)
            return "none"

    def resume(self, records: Sequence[Record]) -> None:
        """Let those that fold catch up; may take long, and runs in a thread of its own."""
        before, CALLING.number = CALLING.number, self._hooks.number
        try:
            for sink in self._resuming:
                try:
                    sink.resume(records)
                except Exception as error:
                    self._hooks.count_error(sink, error)
        finally:
            CALLING.number = before

    def appended(self, seconds: float, records: int) -> None:
        """Tell those that want to know how long an append took."""
        for sink in self._timing:
            try:
                sink.appended(seconds, records)
            except Exception as error:
                self._hooks.count_error(sink, error)

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:  # noqa: ASYNC109 - a plain wait
        """Let each emit what it holds back; called when the registry is closed.

        In a thread, as a collector may be slow. A sink that is not done after ``timeout`` seconds
        is left to itself, and counted as failed.
        """
        waiting = [sink for sink in self._sinks if isinstance(sink, Attached)]
        if not waiting:
            return
        done: Future[None] = Future()
        context = copy_context()

        done.set_running_or_notify_cancel()

        def run() -> None:
            while waiting:
                self._detach(waiting[0])
                del waiting[0]
            done.set_result(None)

        # Not a thread of the loop's pool: the end of the program would wait for it.
        thread = Thread(target=context.run, args=(run,), name="eventctx-sinks", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: better late than never
            run()
        wrapped = asyncio.wrap_future(done)
        try:
            await asyncio.wait([wrapped], timeout=timeout)
        finally:
            late = wrapped.cancel()  # a loop that has ended must not be told later
        if late:
            for sink in tuple(waiting):
                self._hooks.count_error(sink, TimeoutError(f"not done after {timeout:g} s"))

    def _detach(self, sink: Attached) -> None:
        try:
            sink.detach(self._hooks)
        except Exception as error:
            self._hooks.count_error(sink, error)
