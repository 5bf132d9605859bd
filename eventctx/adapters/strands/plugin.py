"""The plugin of a Strands agent: its conversation is a session, an invocation a turn.

``agent.messages`` is the host's storage, and the transcript mirrors it: what a conversation manager
takes out of it, or a guardrail redacts, is an event. Each attempt at a model call is sent the
session's view instead; the agent's own messages are not changed.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from strands import Agent
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, MessageAddedEvent
from strands.interrupt import InterruptException
from strands.middleware import (
    ExecuteToolStage,
    InvokeModelStage,
    ModelStopReason,
    ToolResultEvent,
)
from strands.plugins import Plugin

from eventctx.adapters.kit.given_engine import GivenEngine, OpenSessions
from eventctx.adapters.kit.host_run import HostRun
from eventctx.adapters.strands.agent_session import AgentSession, name_in_session, tool_end
from eventctx.adapters.strands.rows import message_of
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.sync.proxy import SyncEngine

if TYPE_CHECKING:
    from strands.middleware import ExecuteToolContext, InvokeModelContext


T = TypeVar("T")


class EngineOfPlugin(GivenEngine):
    """A given engine that refuses work for which a synchronous call would wait for ever.

    ``agent("…")`` blocks the thread that calls it, while Strands runs the agent in another one. If
    the engine's loop runs in the blocked thread, nothing can be recorded, and nothing would go on.
    """

    def __init__(self, engine: Engine | SyncEngine | str | os.PathLike[str], adapter: str) -> None:
        super().__init__(engine, adapter)
        self._thread = BlockableThread() if isinstance(engine, Engine) else None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """As ``GivenEngine.run``. Raises InvalidSetting where the loop is blocked."""
        if self._thread is not None:
            self._thread.expect_free(work)
        return await super().run(work)


class CalledFrom(NamedTuple):
    """The session that an agent is called from, and the tool call of an agent that is a tool."""

    session: str
    call_id: str | None


class EventctxAgentPlugin(Plugin):  # type: ignore[misc]
    """Records an agent as a session, and sends the session's view.

    ``engine``: an engine, for ``invoke_async`` and ``stream_async`` in its event loop or another
    one; or an engine of ``eventctx.sync``, or the path or URL of a store, which the plugin opens in
    a thread of its own, for ``agent("…")`` too. ``session`` names the session, which is else the
    agent's ``session_id``. Given to several agents, the first has that session, and any other one
    ``<session>.<its name>``, linked to it. ``settings`` are those of ``engine.session``. Put it
    last among the plugins.

    Raises InvalidSetting for an engine outside of its loop, and what opening a store raises.
    """

    name = "eventctx"

    def __init__(
        self,
        engine: Engine | SyncEngine | str | os.PathLike[str],
        session: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._given = EngineOfPlugin(engine, "strands")
        self._session = session
        self._settings = settings
        self._first: str | None = None
        self._open: OpenSessions[AgentSession] = OpenSessions()
        self._callers: dict[str, CalledFrom] = {}

    def close(self) -> None:
        """Close the store that the plugin opened. An engine that was given stays open."""
        self._given.close()

    async def history(self, session: str | None = None) -> list[dict[str, Any]]:
        """A session's messages, never compacted, for ``Agent(messages=…)``.

        ``session`` is that of the plugin by default. Without what no model is sent: the usage and
        the metadata of a message. Raises InvalidSetting where neither names one.
        """
        name = session or self._session
        if name is None:
            raise InvalidSetting(
                "history: expected the name of a session, found none: the plugin has no name of "
                "its own, so give that of a session, such as an agent's session_id"
            )

        async def transcript() -> list[dict[str, Any]]:
            context = await self._given.engine.session(name)
            return [message_of(row) for row in await context.get_messages()]

        return await self._given.run(transcript())

    # -- Strands' seams --------------------------------------------------------------------------

    def init_agent(self, agent: Agent) -> None:
        """Watch an agent; Strands calls it for each that the plugin is given to."""
        if self._first is None:
            self._first = agent.name
        agent.add_hook(self._invocation_begins, BeforeInvocationEvent)
        agent.add_hook(self._message_was_added, MessageAddedEvent)
        agent.add_hook(self._invocation_is_over, AfterInvocationEvent)
        agent.add_middleware(InvokeModelStage, self._model_call)
        agent.add_middleware(ExecuteToolStage, self._tool_call)

    async def _invocation_begins(self, event: BeforeInvocationEvent) -> None:
        await self._run(event.agent).do(lambda session: session.begin(event.agent.name))

    async def _message_was_added(self, event: MessageAddedEvent) -> None:
        await self._run(event.agent).do(
            lambda session: session.add_message(event.agent, event.message)
        )

    async def _invocation_is_over(self, event: AfterInvocationEvent) -> None:
        error = sys.exc_info()[1] if event.result is None else None
        await self._run(event.agent).do(
            lambda session: session.over(event.agent, event.result, error)
        )

    async def _model_call(
        self, context: InvokeModelContext, next_fn: Any
    ) -> AsyncGenerator[Any, None]:
        """Send the view instead of the agent's messages, and record what comes of it."""
        run = self._run(context.agent)
        async with run.call(
            lambda session: session.decide(context), AgentSession.record_answer
        ) as call:
            async for event in next_fn(context.replace(messages=call.begun)):
                if isinstance(event, ModelStopReason):
                    await call.end(event)  # now: the caller may read no further
                yield event

    async def _tool_call(
        self, context: ExecuteToolContext, next_fn: Any
    ) -> AsyncGenerator[Any, None]:
        """Record a tool call."""
        used, helper = context.tool_use, getattr(context.tool, "agent", None)
        called = self._name(helper) if isinstance(helper, Agent) else None
        async with self._run(context.agent).tool(
            used["name"], used["toolUseId"], waits=(InterruptException,)
        ) as tool:
            result: ToolResultEvent | None = None
            if called is not None:
                self._callers[called] = CalledFrom(self._name(context.agent), used["toolUseId"])
            try:
                async for event in next_fn(context):
                    if isinstance(event, ToolResultEvent):
                        result = event
                    yield event
            finally:
                if called is not None:
                    self._callers.pop(called, None)
            if result is not None:
                tool.ends_with(tool_end(result))

    # -- reports ---------------------------------------------------------------------------------

    def _run(self, agent: Agent) -> HostRun[AgentSession]:
        return HostRun(self._given, lambda: self._of(agent))

    def _name(self, agent: Agent) -> str:
        """The session of an agent."""
        whole = str(self._session or agent.session_id)
        return name_in_session(whole, agent.name) if self._is_further(agent) else whole

    def _is_further(self, agent: Agent) -> bool:
        return self._session is not None and agent.name != self._first

    async def _of(self, agent: Agent) -> AgentSession:
        """An agent's session, which is linked to the one that called it."""
        name = self._name(agent)

        async def opened() -> AgentSession:
            engine = self._given.engine
            known = await engine.store.head(name)
            stateful = bool(agent.model.stateful)
            # A conversation on a server cannot be compacted here.
            settings = {**self._settings, **({"max_tokens": None} if stateful else {})}
            context = await engine.session(name, **settings)
            if known is None:
                caller = self._callers.get(name)
                if caller is None and self._is_further(agent):
                    caller = CalledFrom(str(self._session), None)
                if caller is not None:
                    await engine.link(caller.session, name, call_id=caller.call_id)
            return AgentSession(context, stateful)

        return await self._open.of(name, opened)


_WAITS: Final = ("strands._async", "run_async")
"""The module and the function in which Strands blocks."""

_TRIES: Final = 1_000


class BlockableThread:
    """The present thread, in which the loop of an engine runs."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        *_, self._lowest = _stack(sys._getframe())

    def expect_free(self, work: Coroutine[Any, Any, Any]) -> None:
        """Raise InvalidSetting, and drop ``work``, if a synchronous call blocks this thread."""
        if self._thread != threading.get_ident() and self._is_blocked():
            work.close()
            raise InvalidSetting(
                "expected an asynchronous call in the event loop of the engine, found a "
                'synchronous one: await agent.invoke_async("…"), or give the plugin a store\'s path'
            )

    def _is_blocked(self) -> bool:
        for _ in range(_TRIES):
            stack = _stack(sys._current_frames().get(self._thread))
            if any((one.f_globals.get("__name__"), one.f_code.co_name) == _WAITS for one in stack):
                return True
            if not stack or stack[-1] is self._lowest:
                break
            # The thread left its highest frame in the meantime, which so lost those below it.
        return False


def _stack(frame: FrameType | None) -> list[FrameType]:
    """A frame and those below it."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found
