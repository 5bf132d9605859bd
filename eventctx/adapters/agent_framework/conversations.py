"""The conversations of one adapter: which session a run belongs to, and the loop of its work."""

from __future__ import annotations

import uuid
from typing import Any

from eventctx.adapters.agent_framework.conversation import Conversation
from eventctx.adapters.agent_framework.runs import RUN, AgentRun, Caller
from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.adapters.kit.nested import nested_session_id
from eventctx.adapters.kit.open_sessions import OpenSessions
from eventctx.errors import InvalidSetting


class Conversations:
    """The conversations of an adapter, and the loop in which they are worked on."""

    def __init__(self, given: GivenEngine, session: str | None, settings: dict[str, Any]) -> None:
        self.given = given
        self._session = session
        self._settings = settings
        self._open: OpenSessions[Conversation] = OpenSessions()
        self._inside: set[str] = set()
        """The sessions of the runs inside tools that are under way."""

    async def of(self, name: str) -> Conversation:
        """The conversation of a session. Called in the engine's loop."""

        async def opened() -> Conversation:
            context = await self.given.engine.session(name, **self._settings)
            return await Conversation.opened(context)

        return await self._open.of(name, opened)

    async def link(self, caller: Caller, name: str) -> None:
        """Record that a session belongs to the one whose tool call started it."""
        await self.given.engine.link(caller.session, name, call_id=caller.call_id)

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
