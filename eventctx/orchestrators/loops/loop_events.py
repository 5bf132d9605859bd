"""Amplifier module ``loop-eventctx-events``: mounts the events orchestrator."""

from __future__ import annotations

from typing import Any

from eventctx.orchestrators.loops.events import EventsOrchestrator
from eventctx.orchestrators.loops.mounting import MountedOrchestrator, settings_of

__amplifier_module_type__ = "orchestrator"


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount it with the settings in ``config``. Raises InvalidSetting."""
    await coordinator.mount(
        "orchestrator", MountedOrchestrator(EventsOrchestrator(**settings_of(config)))
    )
