"""Strands Agents: a plugin that records an agent, and sends the session's view.

agent = Agent(model=model, tools=tools, plugins=[EventctxAgentPlugin(engine, "my-session")])
"""

from __future__ import annotations

from eventctx.adapters.strands.plugin import EventctxAgentPlugin

__all__ = ["EventctxAgentPlugin"]
