"""What tests of policies, stores, orchestrators and context modules need.

    from eventctx.testing import MockContextManager, ScriptedProvider, given

Names are loaded when they are first used: neither pytest nor amplifier-core is needed for what
does not use it. ``StoreContract`` needs pytest, ``ScriptedAmplifierProvider`` amplifier-core.
"""

from eventctx.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__)
