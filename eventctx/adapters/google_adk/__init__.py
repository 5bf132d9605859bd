"""Google ADK: a plugin that records every agent of a runner, and sends the session's view.

app = App(name="my_app", root_agent=agent, plugins=[EventctxPlugin(engine, max_tokens=100_000)])
"""

from __future__ import annotations

from eventctx.adapters.google_adk.plugin import EventctxPlugin

__all__ = ["EventctxPlugin"]
