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


class AgentRun(NamedTuple):
    """A run of an agent: its session's name, and who loads its history.

    ``histories`` are the ids of the providers whose messages are the conversation; ``per_call``:
    they are loaded for each call, behind the chat middleware. ``owned``: all that load are ours.
    """

    session: str
    agent: str | None = None
    histories: frozenset[str] = frozenset()
    per_call: bool = False
    owned: bool = False


class Caller(NamedTuple):
    """The tool call in which something runs."""

    session: str
    call_id: str | None


RUN: Final[ContextVar[AgentRun | None]] = ContextVar("eventctx_agent_framework_run", default=None)
CALLER: Final[ContextVar[Caller | None]] = ContextVar(
    "eventctx_agent_framework_caller", default=None
)


SOURCE_ID: Final = "eventctx"
"""The name of our history provider among an agent's."""


def run_of(session: str, agent: Any) -> AgentRun:
    """The run of an agent in a session."""
    providers = [
        one
        for one in getattr(agent, "context_providers", None) or ()
        if isinstance(one, HistoryProvider)
    ]
    loading = [one for one in providers if one.load_messages]
    return AgentRun(
        session,
        getattr(agent, "name", None),
        frozenset(one.source_id for one in providers),
        bool(providers) and getattr(agent, "require_per_service_call_history_persistence", False),
        bool(loading) and all(one.source_id == SOURCE_ID for one in loading),
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
