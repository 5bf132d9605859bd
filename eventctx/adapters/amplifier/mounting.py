"""Mounting on a coordinator, and the cleanup.

The kernel mounts a module from a source twice, the first time only to inspect it. So mounting opens
nothing, and the cleanup that it returns takes back everything that it registered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from eventctx.adapters.amplifier.compaction_events import EVENTS
from eventctx.adapters.amplifier.config import Names, read
from eventctx.adapters.amplifier.module import AmplifierContext

PRIORITY: Final = -1_000
"""We come before other handlers, because a handler that denies hides the event from later ones."""

NAME: Final = "context-eventctx"


async def mount_context(
    coordinator: Any, config: Mapping[str, Any] | None, names: Names
) -> Callable[[], Awaitable[None]]:
    """Mount a context manager for the coordinator's session. Raises InvalidSetting."""
    checked = read(config, names)
    hooks = coordinator.hooks
    context = AmplifierContext(coordinator.session_id, coordinator.parent_id, hooks, checked)
    await coordinator.mount("context", context)
    listeners = {
        **context.listener.listeners(),
        "session:start": context.session_began,
        "session:end": context.session_ended,
    }
    stop = [
        hooks.register(event, handler, priority=PRIORITY, name=f"{NAME}:{event}")
        for event, handler in listeners.items()
    ]
    coordinator.register_contributor("observability.events", NAME, lambda: list(EVENTS))

    async def cleanup() -> None:
        for unregister in stop:
            unregister()
        await context.close()

    return cleanup
