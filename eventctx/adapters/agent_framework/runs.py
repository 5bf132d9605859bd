"""The run that a middleware is called in, and the tool call that a run was started by.

The framework hands the middleware of an agent, of its chat client and of its functions no common
object. They run within each other, so the run is a context variable, which is set only around what
is awaited there: never across a ``yield``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

from agent_framework import HistoryProvider, ResponseStream

T = TypeVar("T")


SOURCE_ID: Final = "eventctx"
"""The name of our history provider among an agent's."""


class AgentRun(NamedTuple):
    """A run of an agent, and its session's name.

    The framework may give an agent its history provider in the run, so providers are asked late.
    """

    session: str
    agent: Any

    @property
    def name(self) -> str | None:
        """The agent's name."""
        name = getattr(self.agent, "name", None)
        return name if isinstance(name, str) and name else None

    @property
    def histories(self) -> list[HistoryProvider]:
        """The providers whose messages are the conversation."""
        providers = getattr(self.agent, "context_providers", None) or ()
        return [one for one in providers if isinstance(one, HistoryProvider)]

    @property
    def per_call(self) -> bool:
        """Whether histories are loaded for each call, behind the chat middleware."""
        asks = getattr(self.agent, "require_per_service_call_history_persistence", False)
        return bool(asks and self.histories)

    @property
    def owned(self) -> bool:
        """Whether all history that is loaded is ours."""
        loading = [one for one in self.histories if one.load_messages]
        return bool(loading) and all(one.source_id == SOURCE_ID for one in loading)


class Caller(NamedTuple):
    """The tool call in which something runs."""

    session: str
    call_id: str | None


RUN: Final[ContextVar[AgentRun | None]] = ContextVar("eventctx_agent_framework_run", default=None)
CALLER: Final[ContextVar[Caller | None]] = ContextVar(
    "eventctx_agent_framework_caller", default=None
)


@contextmanager
def within(run: AgentRun | None, caller: Caller | None = None) -> Iterator[None]:
    """Make ``run`` and ``caller`` those of what is awaited in the block."""
    former, outer = RUN.set(run), CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(outer)
        RUN.reset(former)


def watched(
    stream: ResponseStream[Any, T],
    ended: Callable[[T], Awaitable[None]],
    failed: Callable[[BaseException], Awaitable[None]],
    run: AgentRun | None,
) -> ResponseStream[Any, T]:
    """The same stream, whose end is reported before its reader sees it; each pull is in ``run``."""
    final: list[T] = []
    caller = CALLER.get()

    async def updates() -> AsyncIterator[Any]:
        try:
            pulled = stream.__aiter__()
            while True:
                with within(run, caller):
                    try:
                        update = await pulled.__anext__()
                    except StopAsyncIteration:
                        final.append(await stream.get_final_response())
                        break
                yield update
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                await stream.close()
            await failed(error)
            raise
        await ended(final[0])

    return ResponseStream(updates(), finalizer=lambda _: final[0])
