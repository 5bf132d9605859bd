"""Hooks of the SDK that import a session: before a compaction, and when a turn is over.

Claude Code calls the hook of a turn's end before it has written the turn's last lines, so what is
appended until the next prompt is imported as it comes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import HookMatcher

if TYPE_CHECKING:
    from claude_agent_sdk import HookContext
    from claude_agent_sdk.types import HookEvent, HookJSONOutput, SessionListSubkeysKey

_EVENTS: Final[tuple[HookEvent, ...]] = ("PreCompact", "Stop", "SubagentStop", "UserPromptSubmit")

_log = logging.getLogger(__name__)

Import = Callable[["SessionListSubkeysKey"], Awaitable[object]]


def importing_hooks(import_session: Import, over: set[str]) -> dict[HookEvent, list[HookMatcher]]:
    """The hooks. They answer nothing, so that the agent goes on as without them.

    ``over`` are the ids of sessions whose turn is over; the hooks keep it.
    """

    async def seen(given: Any, _: str | None, __: HookContext) -> HookJSONOutput:
        event, session = given.get("hook_event_name"), given.get("session_id")
        if event == "UserPromptSubmit":
            over.discard(session)
            return {}
        if event == "Stop":
            over.add(session)
        # The folder of a transcript is named after the project's key.
        folder = Path(given.get("transcript_path", "")).parent.name
        await import_quietly(import_session, {"project_key": folder, "session_id": session})
        return {}

    return {event: [HookMatcher(hooks=[seen])] for event in _EVENTS}


async def import_quietly(import_session: Import, key: SessionListSubkeysKey) -> None:
    """Import a session; a failure is a warning, since an import is never worth an agent's turn."""
    try:
        await import_session(key)
    except Exception as error:
        _log.warning("a session of the Claude Agent SDK was not imported: %s", error)
