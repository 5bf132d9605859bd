"""Hooks of the SDK that import a session: before a compaction, and when a turn is over."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import HookMatcher

if TYPE_CHECKING:
    from claude_agent_sdk import HookContext
    from claude_agent_sdk.types import HookEvent, HookJSONOutput, SessionListSubkeysKey

_EVENTS: Final[tuple[HookEvent, ...]] = ("PreCompact", "Stop", "SubagentStop")

_log = logging.getLogger(__name__)

Import = Callable[["SessionListSubkeysKey"], Awaitable[object]]


def importing_hooks(import_session: Import) -> dict[HookEvent, list[HookMatcher]]:
    """The hooks. They answer nothing, so that the agent goes on as without them."""

    async def seen(given: Any, _: str | None, __: HookContext) -> HookJSONOutput:
        try:
            # The folder of a transcript is named after the project's key.
            folder = Path(given["transcript_path"]).parent.name
            await import_session({"project_key": folder, "session_id": given["session_id"]})
        except Exception as error:  # an import is never worth an agent's turn
            _log.warning("a session of the Claude Agent SDK was not imported: %s", error)
        return {}

    return {event: [HookMatcher(hooks=[seen])] for event in _EVENTS}
