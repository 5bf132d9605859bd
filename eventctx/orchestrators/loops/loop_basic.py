"""Amplifier module ``loop-eventctx-basic``: mounts the basic orchestrator."""

from __future__ import annotations

from typing import Any

from eventctx.orchestrators.loops.basic import BasicOrchestrator
from eventctx.orchestrators.loops.mounting import MountedOrchestrator, settings_of

__amplifier_module_type__ = "orchestrator"


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount it with the settings in ``config``. Raises InvalidSetting."""
    await coordinator.mount(
        "orchestrator", MountedOrchestrator(BasicOrchestrator(**settings_of(config)))
    )
