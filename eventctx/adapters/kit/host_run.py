"""One run of a host's agent, as its seams report it: a turn, its model calls and its tool calls.

Invariant: each step that began in the log gets one end, whatever ends it in the host. It is the
result that the host gives, else the error that leaves the step: a failure, or a cancellation where
the caller gave up. A step without either is ended by the next report (``session/host_turns.py``).

Seams are called in any loop or thread. Their reports are recorded in the event loop of the engine,
with the session that the adapter holds there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.kit.loops import EngineLoop
from eventctx.adapters.kit.nested import ToolAround, inside_tool
from eventctx.session.host_turns import HostReporter

S = TypeVar("S", bound=HostSession)
T = TypeVar("T")
Begun = TypeVar("Begun")
Result = TypeVar("Result")

Done = Coroutine[Any, Any, T]


class ToolEnd(NamedTuple):
    """The end of a tool call: its text, and the type of the error that the text tells, if any."""

    answer: str | None = None
    failure: str | None = None


class HostRun(Generic[S]):
    """A run in the session that ``opened`` gives, which is called in the loop of the engine.

    A handle without a state of its own: a host that only calls back makes one in each callback.
    """

    def __init__(self, loop: EngineLoop, opened: Callable[[], Awaitable[S]]) -> None:
        self._loop = loop
        self._opened = opened

    async def do(self, work: Callable[[S], Awaitable[T]]) -> T:
        """Await ``work`` with the session, in the engine's loop. It is finished when cancelled."""

        async def done() -> T:
            return await work(await self._opened())

        return await self._loop.run(done())

    def turn(
        self,
        begin: Callable[[S], Awaitable[Begun]],
        over: Callable[[S, Result], Awaitable[None]],
        failed: Callable[[S, BaseException], Awaitable[None]] | None = None,
    ) -> RunStep[Begun, Result]:
        """The run as a turn. ``begin`` and ``over`` record it; ``failed``, too, if it is given."""
        return self._step(
            begin, over, failed or (lambda host, error: turn_failed(host.turns, error))
        )

    def call(
        self,
        decide: Callable[[S], Awaitable[Begun]],
        answered: Callable[[S, Result], Awaitable[None]],
    ) -> RunStep[Begun, Result]:
        """A model call. ``decide`` records its request and returns what to send in ``begun``.

        ``answered`` records the answer before its tools run, whose crash would take it along.
        """
        return self._step(decide, answered, lambda host, error: call_failed(host.turns, error))

    def tool(
        self,
        name: str,
        call_id: str | None,
        inside: ToolAround | None = None,
        *,
        first: Callable[[S], Awaitable[None]] | None = None,
        waits: tuple[type[BaseException], ...] = (),
    ) -> RunStep[None, ToolEnd]:
        """A tool call, known by its id, else its name. Runs in its block are nested in ``inside``.

        ``first`` is done before the call is recorded. ``waits`` are the errors of a tool that
        waits for a person, and has not failed.
        """

        key = call_id or name

        async def began(host: S) -> None:
            if first is not None:
                await first(host)
            await host.turns.tool_began(name, call_id, key)

        async def ended(host: S, end: ToolEnd) -> None:
            if end.failure is None:
                await host.turns.tool_ended(key, end.answer, name=name)
            else:
                await host.turns.tool_failed(key, end.failure, end.answer or "", name=name)

        async def failed(host: S, error: BaseException) -> None:
            left = isinstance(error, waits)
            await tool_failed(host.turns, key, error, name=name, cancelled=left)

        return self._step(began, ended, failed, inside)

    def _step(
        self,
        begin: Callable[[S], Awaitable[Begun]],
        end: Callable[[S, Result], Awaitable[None]],
        fail: Callable[[S, BaseException], Awaitable[None]],
        inside: ToolAround | None = None,
    ) -> RunStep[Begun, Result]:
        return RunStep(
            self._loop,
            lambda: self.do(begin),
            lambda result: self.do(lambda host: end(host, result)),
            lambda error: self.do(lambda host: fail(host, error)),
            inside,
        )


class RunStep(Generic[Begun, Result]):
    """A step of a run: ``async with``, or ``with`` in a thread where no loop runs.

    A host that only calls back awaits ``begin``, and then ``end`` or ``fail``, of equal steps.
    """

    def __init__(
        self,
        loop: EngineLoop,
        begin: Callable[[], Done[Begun]],
        end: Callable[[Result], Done[None]],
        fail: Callable[[BaseException], Done[None]],
        inside: ToolAround | None = None,
    ) -> None:
        self.begin, self.end, self.fail = begin, end, fail
        self.begun: Begun
        """The value that the beginning returned; set in a block."""
        self._loop = loop
        self._inside = inside
        self._results: list[Result] = []
        self._leave = ExitStack()

    def ends_with(self, result: Result) -> None:
        """Set the result that is recorded when the block is left, also by an exception."""
        self._results.append(result)

    async def __aenter__(self) -> RunStep[Begun, Result]:
        self.begun = await self.begin()
        return self._entered()

    def __enter__(self) -> RunStep[Begun, Result]:
        self.begun = self._loop.wait(self.begin())
        return self._entered()

    def _entered(self) -> RunStep[Begun, Result]:
        if self._inside is not None:
            self._leave.enter_context(inside_tool(self._inside))
        return self

    async def __aexit__(
        self, _: object, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._leave.close()
        await self._over(error)

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        self._leave.close()
        self._loop.wait(self._over(error))

    async def _over(self, error: BaseException | None) -> None:
        if self._results:
            await self.end(self._results.pop())
        elif error is not None:
            await self.fail(error)


# -- failures ------------------------------------------------------------------------------------


def is_cancellation(error: BaseException) -> bool:
    """Whether an error is a cancellation, and no failure."""
    return isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt)


async def call_failed(turns: HostReporter, error: BaseException) -> None:
    """Record that the model call failed, or was cancelled. Raises what the store raises."""
    await turns.model_failed(type(error).__name__, str(error), cancelled=is_cancellation(error))


async def tool_failed(
    turns: HostReporter,
    key: object,
    error: BaseException,
    *,
    answer: str | None = None,
    name: str | None = None,
    cancelled: bool = False,
) -> None:
    """Record that the tool call failed, or was cancelled: also where the host says so differently.

    ``key`` and ``name`` are as in ``tool_ended``; ``answer`` is the text that the host makes of the
    error for the model. Raises what the store raises.
    """
    gave_up = cancelled or is_cancellation(error)
    kind, message = type(error).__name__, str(error)
    await turns.tool_failed(key, kind, message, cancelled=gave_up, answer=answer, name=name)


async def turn_failed(turns: HostReporter, error: BaseException) -> None:
    """Record that the turn failed, or was cancelled, and all calls in it. Raises as above."""
    if is_cancellation(error):
        await turns.turn_ended("cancelled")
    else:
        await turns.turn_ended("error", f"{type(error).__name__}: {error}")
