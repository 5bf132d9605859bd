"""Orchestrators: turns of an agent, with every step in the log and known to hooks.

A name is loaded when it is first used; none of them needs an SDK.
"""

from eventctx.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__)
