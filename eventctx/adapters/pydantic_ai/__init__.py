"""Pydantic AI agents: a capability that records and compacts, and a store of conversations.

agent = Agent(model, capabilities=[Eventctx(engine, max_tokens=100_000)])
"""

from __future__ import annotations

from eventctx.adapters.pydantic_ai.capability import Eventctx
from eventctx.adapters.pydantic_ai.conversations import EventctxConversations

__all__ = ["Eventctx", "EventctxConversations"]
