"""Helpers for tests of policies, stores, orchestrators and context modules.

    from eventctx.testing import MockContextManager, ScriptedProvider, given

A name is loaded when it is first used, so only some of them need another package:
``StoreContract`` and ``AdapterContract`` need pytest, ``ScriptedAmplifierProvider`` needs
amplifier-core.
"""

from eventctx.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__)
