"""Sinks of an engine: observers of all records, with further protocols that a sink may implement.

``eventctx.open(sinks=[LogSink(), TraceSink(), MetricsSink()])`` subscribes each to every record,
and uses the other protocols of a sink if it implements them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import Final, Literal, Protocol, runtime_checkable

from eventctx.errors import InvalidSetting
from eventctx.hooks.handlers import CALLING
from eventctx.hooks.registry import Hooks
from eventctx.log.arguments import check_callable, shown
from eventctx.log.ids import CurrentSpan
from eventctx.log.record import Record
from eventctx.projections.view.state import ViewState

History = Literal["none", "records", "contents"]
CLOSE_TIMEOUT: Final = 10.0
"""Seconds that all sinks of an engine together have, on close, to emit what they hold back."""

_NEEDS: Final[tuple[History, ...]] = ("none", "records", "contents")


class Sink(Protocol):
    """An observer of all records: sync, quick, from any thread."""

    def __call__(self, record: Record) -> None:
        """Process a record that was appended."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A sink that folds, so it needs a session's history before the records that come next."""

    def resume(self, records: Iterable[Record]) -> None:
        """Fold a session's records from its beginning, and replace the sink's state of it.

        The sink emits nothing. The records of a fork are those it inherits, then its own.
        """
        ...

    def history(self) -> History:
        """The part of a session's history that the sink needs at present when it is opened again.

        ``"records"`` come without their bodies' data, ``"contents"`` with it.
        """
        ...


@runtime_checkable
class Attached(Protocol):
    """A sink that uses the registry which it is subscribed to."""

    def attach(self, hooks: Hooks) -> None:
        """Receive the registry before its first record. One sink may serve several engines."""
        ...

    def detach(self, hooks: Hooks) -> None:
        """No more records come from this registry: emit what was held back."""
        ...


@runtime_checkable
class Timing(Protocol):
    """A sink that measures how long appends take."""

    def appended(self, seconds: float, records: int) -> None:
        """Record that storing ``records`` records took ``seconds``, from the call of the store."""
        ...


@runtime_checkable
class Borrowing(Protocol):
    """A sink that needs the request view, which the session that publishes has folded already."""

    def lend(self, session_id: str, view: ViewState) -> None:
        """Take the view after the records that come next; the last request is one of them."""
        ...


class Sinks:
    """The sinks of one engine, subscribed to its registry. Their errors never reach the engine."""

    def __init__(self, sinks: Sequence[Sink], hooks: Hooks) -> None:
        if not isinstance(sinks, Iterable):
            raise InvalidSetting(
                f"sinks: expected a list of sinks, as in sinks=[sink], found {shown(sinks)}"
            )
        self._sinks = tuple(sinks)
        self._hooks = hooks
        self._resuming = [sink for sink in self._sinks if isinstance(sink, Resuming)]
        self._timing = [sink for sink in self._sinks if isinstance(sink, Timing)]
        self._borrowing = [sink for sink in self._sinks if isinstance(sink, Borrowing)]
        for sink in self._sinks:
            if isinstance(sink, Attached):
                try:
                    sink.attach(hooks)
                except Exception as error:
                    hooks.count_error(sink, error)
            check_callable("sinks", sink)
            hooks.on("*", sink)

    @property
    def current_span(self) -> CurrentSpan | None:
        """The first sink that can make a span the host's current one; None if there is none."""
        for sink in self._sinks:
            if isinstance(sink, CurrentSpan):
                return sink
        return None

    def history(self) -> History:
        """The most history that any sink needs of a session that is opened again."""
        return max(map(self._needed, self._resuming), key=_NEEDS.index, default="none")

    def _needed(self, sink: Resuming) -> History:
        try:
            return sink.history()
        except Exception as error:  # a sink may call the host's provider, which may raise
            self._hooks.count_error(sink, error)
            return "none"

    def resume(self, records: Sequence[Record]) -> None:
        """Let the sinks that fold process a session's history.

        May take long; the caller runs it in a thread of its own.
        """
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
        """Pass the duration of an append to the sinks that measure it."""
        for sink in self._timing:
            try:
                sink.appended(seconds, records)
            except Exception as error:
                self._hooks.count_error(sink, error)

    @property
    def borrow(self) -> bool:
        """Whether a sink takes views."""
        return bool(self._borrowing)

    def lend(self, session_id: str, view: ViewState) -> None:
        """Pass the view after the records that come next to the sinks that need it."""
        before, CALLING.number = CALLING.number, self._hooks.number
        try:
            for sink in self._borrowing:
                try:
                    sink.lend(session_id, view)
                except Exception as error:
                    self._hooks.count_error(sink, error)
        finally:
            CALLING.number = before

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:  # noqa: ASYNC109 - a plain wait
        """Let each sink emit what it holds back; called when the registry is closed.

        Runs in a thread, as a collector may be slow. After ``timeout`` seconds, the sinks that are
        not done go on without being waited for, and count as failed.
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

        # Not a thread of the loop's pool, for which the end of the program would wait.
        thread = Thread(target=context.run, args=(run,), name="eventctx-sinks", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: run here, although it blocks
            run()
        wrapped = asyncio.wrap_future(done)
        try:
            await asyncio.wait([wrapped], timeout=timeout)
        finally:
            late = wrapped.cancel()  # the thread must not call back into a loop that has ended
        if late:
            for sink in tuple(waiting):
                self._hooks.count_error(sink, TimeoutError(f"not done after {timeout:g} s"))

    def _detach(self, sink: Attached) -> None:
        try:
            sink.detach(self._hooks)
        except Exception as error:
            self._hooks.count_error(sink, error)
