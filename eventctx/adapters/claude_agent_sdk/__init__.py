"""The Claude Agent SDK: its transcripts kept in the log, resumed from it, and imported.

store = EventctxSessionStore(engine)
options = ClaudeAgentOptions(session_store=store, session_store_flush="eager", hooks=store.hooks())
"""

from __future__ import annotations

from eventctx.adapters.claude_agent_sdk.session_store import EventctxSessionStore

__all__ = ["EventctxSessionStore"]
