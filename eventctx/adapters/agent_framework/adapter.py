"""The adapter's one object: middleware for agents, and a history provider.

A conversation is a session, a run a turn, and each call of the chat client is sent the session's
view. The framework's own history stays as it is, unless ``history`` takes its place.
"""

from __future__ import annotations

import os
from typing import Any

from agent_framework import AgentMiddleware, ChatMiddleware, FunctionMiddleware, MiddlewareBundle

from eventctx.adapters.agent_framework.conversations import Conversations
from eventctx.adapters.agent_framework.history import EventctxHistory
from eventctx.adapters.agent_framework.middleware import AgentRuns, ChatCalls, FunctionCalls
from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.engine import Engine


class EventctxAgents:
    """Records each conversation of an agent as a session, and sends the session's view.

    ``engine``: an engine, for runs in its event loop or another one; or the path or URL of a store,
    which is opened in a thread of its own. ``session`` names the one session of all runs, which is
    else the id of the run's ``AgentSession``. ``settings`` are those of ``engine.session``. Put it
    last in an agent's ``middleware``. Runs of one conversation follow each other.

    Raises InvalidSetting for an engine outside of its loop, and what opening a store raises.
    """

    def __init__(
        self,
        engine: Engine | str | os.PathLike[str],
        session: str | None = None,
        **settings: Any,
    ) -> None:
        given = GivenEngine(engine, "agent-framework")
        self._conversations = Conversations(given, session, settings)
        self._middleware = (
            AgentRuns(self._conversations),
            FunctionCalls(self._conversations),
            ChatCalls(self._conversations),
        )

    @property
    def middleware(self) -> list[AgentMiddleware | FunctionMiddleware | ChatMiddleware]:
        """The middleware of an agent: of its runs, its functions and its chat client's calls."""
        return list(self._middleware)

    @property
    def bundle(self) -> MiddlewareBundle:
        """The same as one unit, a class that the framework calls experimental."""
        return MiddlewareBundle(self._middleware)

    @property
    def history(self) -> EventctxHistory:
        """The provider for ``context_providers`` that keeps the conversation in the log alone."""
        return EventctxHistory(self._conversations)

    def close(self) -> None:
        """Close the store that was opened here. An engine that was given stays open."""
        self._conversations.given.close()
