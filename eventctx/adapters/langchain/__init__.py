"""LangChain agents, and what is built of them: a middleware that records and compacts.

agent = create_agent(model, tools, middleware=[EventctxMiddleware(engine, max_tokens=100_000)])
"""

from __future__ import annotations

from eventctx.adapters.langchain.middleware import EventctxMiddleware

__all__ = ["EventctxMiddleware"]
