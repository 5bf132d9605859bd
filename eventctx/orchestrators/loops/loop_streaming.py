"""Amplifier module ``loop-eventctx-streaming``: mounts the streaming orchestrator."""

from __future__ import annotations

from typing import Any

from eventctx.orchestrators.loops.mounting import MountedOrchestrator, settings_of
from eventctx.orchestrators.loops.streaming import StreamingOrchestrator

__amplifier_module_type__ = "orchestrator"


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount it with the settings in ``config``. Raises InvalidSetting."""
    await coordinator.mount(
        "orchestrator", MountedOrchestrator(StreamingOrchestrator(**settings_of(config)))
    )
