"""LangGraph's checkpoints in a store of eventctx: a thread is a session, its messages are events.

graph = builder.compile(checkpointer=EventctxSaver("threads.db"))
"""

from __future__ import annotations

from eventctx.adapters.langgraph.saver import EventctxSaver

__all__ = ["EventctxSaver"]
