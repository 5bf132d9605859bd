"""The adapter's one object: middleware for agents, and a history provider.

A conversation is a session, a run a turn, and each call of the chat client is sent the session's
view. The framework's own history stays as it is, unless ``history`` takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from agent_framework import (
    AgentMiddleware,
    ChatMiddleware,
    FunctionMiddleware,
    HistoryProvider,
    Message,
    MiddlewareBundle,
)

from eventctx.adapters.agent_framework.conversation import AgentConversation
from eventctx.adapters.agent_framework.middleware import AgentRuns, ChatCalls, FunctionCalls
from eventctx.adapters.agent_framework.runs import RUN, SOURCE_ID, Conversations
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


class EventctxHistory(HistoryProvider):
    """The framework's history, kept in the session. ``EventctxAgents.history`` makes it."""

    def __init__(self, conversations: Conversations) -> None:
        super().__init__(SOURCE_ID)
        self._conversations = conversations

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **more: Any
    ) -> list[Message]:
        """The conversation, never compacted. Raises InvalidSetting without a session."""
        name = self._conversations.named(session_id)

        async def transcript(found: AgentConversation) -> list[Message]:
            return [] if found.decides else found.history()

        return await self._conversations.reports(name).do(transcript)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Add messages; those of a run with our middleware are in the log already."""
        name = self._conversations.named(session_id)
        if RUN.get() is None:
            await self._conversations.reports(name).do(lambda found: found.store(messages))
