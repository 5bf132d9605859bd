"""The settings that the three orchestrators share."""

from __future__ import annotations

import asyncio
import difflib
import random
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from eventctx.log.arguments import check_optional_text
from eventctx.policies.constraints import AtLeastOne, Count, Seconds, check
from eventctx.session.settings import UnknownSetting

Sleep = Callable[[float], Awaitable[None]]
"""Waits for a number of seconds."""


class OrchestratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds; None means no limit.

    ``max_iterations`` counts the provider/tool cycles of a turn; after them the model must answer
    without tools. ``max_retries`` counts the attempts after the first, for a model call
    that may succeed later. ``provider_timeout`` is the longest wait for an answer, or for the next
    piece of a streamed one. ``planning`` begins every turn with a plan. ``tools`` says what the
    basic orchestrator, which runs none, does with tools. ``provider`` names the provider to ask
    where there are several. ``agent`` names the agent whose turns these are. ``sleep`` waits
    between attempts; ``jitter`` draws from 0 to 1 which share of the longest wait is taken.
    """

    max_iterations: AtLeastOne | None = 50
    max_retries: Count = 4
    provider_timeout: Seconds | None = 600.0
    tool_timeout: Seconds | None = None
    turn_timeout: Seconds | None = None
    planning: bool = False
    tools: Literal["refuse", "ignore"] = "refuse"
    provider: str | None = None
    agent: str | None = None
    sleep: Sleep = asyncio.sleep
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        check(self)
        check_optional_text("agent", self.agent)


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
