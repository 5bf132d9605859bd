"""Helpers for tests of policies, stores, orchestrators and context modules.

    from eventctx.testing import MockContextManager, ScriptedProvider, given

A name is loaded when it is first used, so only two of them need another package:
``StoreContract`` needs pytest, ``ScriptedAmplifierProvider`` needs amplifier-core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventctx.testing.amplifier import ScriptedAmplifierProvider
    from eventctx.testing.contexts import MockContextManager
    from eventctx.testing.fixed import FixedClock, FixedRandom
    from eventctx.testing.policies import Given, Outcome, given
    from eventctx.testing.providers import ScriptedProvider
    from eventctx.testing.recorder import EventRecorder
    from eventctx.testing.requests import check_request
    from eventctx.testing.script import Reply
    from eventctx.testing.store_contract import StoreContract
    from eventctx.testing.tools import Hang, ScriptedTool, big

_HOMES = {
    "EventRecorder": "recorder",
    "FixedClock": "fixed",
    "FixedRandom": "fixed",
    "Given": "policies",
    "Hang": "tools",
    "MockContextManager": "contexts",
    "Outcome": "policies",
    "Reply": "script",
    "ScriptedAmplifierProvider": "amplifier",
    "ScriptedProvider": "providers",
    "ScriptedTool": "tools",
    "StoreContract": "store_contract",
    "big": "tools",
    "check_request": "requests",
    "given": "policies",
}

__all__ = [
    "EventRecorder",
    "FixedClock",
    "FixedRandom",
    "Given",
    "Hang",
    "MockContextManager",
    "Outcome",
    "Reply",
    "ScriptedAmplifierProvider",
    "ScriptedProvider",
    "ScriptedTool",
    "StoreContract",
    "big",
    "check_request",
    "given",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eventctx.testing' has no attribute {name!r}")
    value = getattr(import_module(f"eventctx.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
