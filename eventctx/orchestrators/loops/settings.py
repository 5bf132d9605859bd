"""The settings that the three orchestrators share."""

from __future__ import annotations

import asyncio
import difflib
import random
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.session.settings import UnknownSetting

Sleep = Callable[[float], Awaitable[None]]
"""Waits for a number of seconds."""


class OrchestratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds; None means no limit.

    ``max_iterations`` counts the provider/tool cycles of a turn; after them the model is asked for
    its answer without tools. ``max_retries`` counts the attempts after the first, for a model call
    that may succeed later. ``provider_timeout`` is the longest wait for an answer, or for the next
    piece of a streamed one. ``planning`` begins every turn with a plan. ``provider`` names the
    provider to ask where there are several. ``sleep`` waits between attempts; ``jitter`` draws
    from 0 to 1 which share of the longest wait is taken.
    """

    max_iterations: int | None = 50
    max_retries: int = 4
    provider_timeout: float | None = 600.0
    tool_timeout: float | None = None
    turn_timeout: float | None = None
    planning: bool = False
    provider: str | None = None
    sleep: Sleep = asyncio.sleep
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        for name, least in (("max_iterations", 1), ("max_retries", 0)):
            value = getattr(self, name)
            if value is None and name == "max_iterations":
                continue
            if type(value) is not int or value < least:
                raise InvalidSetting(f"{name}: expected an int from {least}, found {value!r}")
        for name in ("provider_timeout", "tool_timeout", "turn_timeout"):
            value = getattr(self, name)
            if value is None or (type(value) in (int, float) and value > 0):
                continue
            raise InvalidSetting(f"{name}: expected more than 0 s or None, found {value!r}")
        if type(self.planning) is not bool:
            raise InvalidSetting(f"planning: expected a bool, found {self.planning!r}")
        if self.provider is not None and not isinstance(self.provider, str):
            raise InvalidSetting(f"provider: expected a name or None, found {self.provider!r}")
        for name in ("sleep", "jitter"):
            if not callable(getattr(self, name)):
                raise InvalidSetting(f"{name}: expected a callable, found {getattr(self, name)!r}")


NAMES: Final = tuple(field.name for field in msgspec.structs.fields(OrchestratorSettings))
"""The names of the settings."""


def settings_from(given: Mapping[str, Any], stacklevel: int = 3) -> OrchestratorSettings:
    """The settings in ``given``; unknown ones give a warning. Raises InvalidSetting."""
    for name in given:
        if name not in NAMES:
            near = difflib.get_close_matches(str(name), NAMES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            warnings.warn(
                f"orchestrator setting {name!r} is unknown and has no effect{hint}",
                UnknownSetting,
                stacklevel,
            )
    return OrchestratorSettings(**{name: given[name] for name in NAMES if name in given})
