"""The framework's history provider, kept in the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import HistoryProvider, Message

from eventctx.adapters.agent_framework.conversations import Conversations
from eventctx.adapters.agent_framework.runs import RUN, SOURCE_ID


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

        async def transcript() -> list[Message]:
            found = await self._conversations.of(name)
            return [] if found.decides else found.messages()

        return await self._conversations.given.run(transcript())

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
        if RUN.get() is not None:
            return

        async def stored() -> None:
            await (await self._conversations.of(name)).store(messages)

        await self._conversations.given.run(stored())
