"""Mounting on a coordinator, and the cleanup.

The kernel mounts a module from a source twice, the first time only to inspect it. So mounting opens
nothing, and the cleanup that it returns takes back everything that it registered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from eventctx.adapters.amplifier.compaction_events import EVENTS
from eventctx.adapters.amplifier.config import Names, read
from eventctx.adapters.amplifier.module import AmplifierContext, usable_id

PRIORITY: Final = -1_000
"""We come before other handlers, because a handler that denies hides the event from later ones."""

NAME: Final = "context-eventctx"


async def mount_context(
    coordinator: Any,
    config: Mapping[str, Any] | None,
    names: Names,
    file_of: Callable[[str], Path | None] | None = None,
) -> Callable[[], Awaitable[None]]:
    """Mount a context manager for the coordinator's session. Raises InvalidSetting.

    ``file_of`` gives the transcript's file of a session whose configuration names none.
    """
    checked = read(config, names)
    if file_of is not None and not checked.transcript_path and _wants_file(checked.given):
        checked = checked._replace(transcript_path=file_of(usable_id(coordinator.session_id)))
    hooks = coordinator.hooks
    context = AmplifierContext(
        *(coordinator.session_id, coordinator.parent_id, hooks, checked),
        display=lambda: getattr(coordinator, "display_system", None),
        providers=lambda: coordinator.get("providers"),
    )
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
    for name, capability in context.capabilities().items():
        coordinator.register_capability(name, capability)
    coordinator.register_contributor("observability.events", NAME, lambda: list(EVENTS))

    async def cleanup() -> None:
        for unregister in stop:
            unregister()
        await context.close()

    return cleanup


def _wants_file(given: Mapping[str, Any]) -> bool:
    return given.get("transcript_path") is not False
