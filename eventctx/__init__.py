"""eventctx: an event-sourced context engine for LLM agents.

Every add, set and clear of an agent's context is an immutable event; the transcript, the views
that the model is sent, and the audit of every request are derived from the log.

    async with eventctx.open("sqlite:///contexts.db") as engine:
        ctx = await engine.session("my-session", max_tokens=200_000)

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from eventctx.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__)
