"""The runs of agents: which session each is recorded in, and which one a middleware is called in.

The framework hands the middleware of an agent, of its chat client and of its functions no common
object. They run within each other, so the run is a context variable, which is set only around what
is awaited there: never across a ``yield``.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

from agent_framework import HistoryProvider, ResponseStream

from eventctx.adapters.agent_framework.conversation import AgentConversation
from eventctx.adapters.kit.given_engine import GivenEngine, OpenSessions
from eventctx.adapters.kit.host_run import HostRun, RunStep
from eventctx.adapters.kit.nested import nested_session_id
from eventctx.errors import InvalidSetting

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
        """Whether histories are loaded for each call, after the chat middleware."""
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
    stream: ResponseStream[Any, T], step: RunStep[Any, Any], run: AgentRun | None
) -> ResponseStream[Any, T]:
    """The same stream. Its end is that of ``step``, before its reader sees it.

    Each pull of it is in ``run``.
    """
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
            await step.fail(error)
            raise
        await step.end(final[0])

    return ResponseStream(updates(), finalizer=lambda _: final[0])


class Conversations:
    """The conversations of an adapter, and the loop in which they are worked on."""

    def __init__(self, given: GivenEngine, session: str | None, settings: dict[str, Any]) -> None:
        self.given = given
        self._session = session
        self._settings = settings
        self._open: OpenSessions[AgentConversation] = OpenSessions()
        self._inside: set[str] = set()
        """The sessions of the runs inside tools that are under way."""

    def reports(self, name: str) -> HostRun[AgentConversation]:
        """The driver that a run in this session reports to."""

        async def opened() -> AgentConversation:
            context = await self.given.engine.session(name, **self._settings)
            return await AgentConversation.opened(context)

        return HostRun(self.given, lambda: self._open.of(name, opened))

    def run(self, agent: Any, session: Any, caller: Caller | None) -> AgentRun:
        """The run of an agent in a session of the framework, or in none."""
        own = None if session is None else str(session.session_id)
        if caller is None:
            name = self._session or own or str(uuid.uuid4())
        elif own is not None and own != caller.session:
            name = own
        else:
            label = getattr(agent, "name", None) or "agent"
            name = f"{caller.session}.{label}"
        if caller is not None:
            if name in self._inside:  # the answer called this agent more than once
                name = nested_session_id(name, caller.call_id or "call")
            self._inside.add(name)
        return AgentRun(name, agent)

    def run_over(self, run: AgentRun) -> None:
        """The run ended, and its session may be that of another run inside a tool."""
        self._inside.discard(run.session)

    def named(self, session_id: str | None) -> str:
        """The session of the present run, else that of an id of the framework's."""
        run = RUN.get()
        name = run.session if run is not None else self._session or session_id
        if name is None:
            raise InvalidSetting(
                "expected a session of the framework, found none: run the agent with session=…, "
                "or give session=… to EventctxAgents"
            )
        return name
