"""The OpenAI Agents SDK: its sessions kept in the log, its requests decided and recorded.

session = await AgentsSession.open(engine, "my-session", max_tokens=100_000)
result = await Runner.run(agent, "hi", **session.options())
"""

from __future__ import annotations

from eventctx.adapters.openai_agents.session import AgentsSession

__all__ = ["AgentsSession"]
