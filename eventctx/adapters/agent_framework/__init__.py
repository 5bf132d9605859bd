"""Microsoft Agent Framework: middleware that records an agent, and sends the session's view.

agent = Agent(client, middleware=EventctxAgents(engine, max_tokens=100_000).middleware)
"""

from __future__ import annotations

from eventctx.adapters.agent_framework.adapter import EventctxAgents, EventctxHistory

__all__ = ["EventctxAgents", "EventctxHistory"]
