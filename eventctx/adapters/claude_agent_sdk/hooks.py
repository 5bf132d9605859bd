"""Hooks of the SDK: they import a session, and repeat a person's words after a compaction.

Claude Code calls the hook of a turn's end before it has written the turn's last lines, so what is
appended until the next prompt is imported as it comes. After a compaction it asks for a text before
it writes the summary (docs/decisions/0066-a-hook-tells-what-holds.md).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from claude_agent_sdk import HookMatcher

if TYPE_CHECKING:
    from claude_agent_sdk import HookContext
    from claude_agent_sdk.types import HookEvent, HookJSONOutput, SessionListSubkeysKey

_EVENTS: Final[tuple[HookEvent, ...]] = ("PreCompact", "Stop", "SubagentStop", "UserPromptSubmit")

_STARTED: Final = cast("HookEvent", "SessionStart")
"""The types of the SDK 0.2.187 lack this event; its program raises it for those who ask for it."""

_log = logging.getLogger(__name__)

Import = Callable[["SessionListSubkeysKey"], Awaitable[object]]
Remind = Callable[[str], Awaitable[str | None]]


def session_hooks(
    import_session: Import, over: set[str], reminder_of: Remind
) -> dict[HookEvent, list[HookMatcher]]:
    """The hooks. But for a reminder after a compaction they answer nothing.

    ``over`` are the ids of sessions whose turn is over; the hooks keep it. ``reminder_of``
    gives the text for the model of a session that was compacted, if any.
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

    async def compacted(given: Any, _: str | None, __: HookContext) -> HookJSONOutput:
        text = await _reminded(reminder_of, given.get("session_id"))
        if text is None:
            return {}
        answer = {"hookEventName": "SessionStart", "additionalContext": text}
        return cast("HookJSONOutput", {"hookSpecificOutput": answer})

    hooks = {event: [HookMatcher(hooks=[seen])] for event in _EVENTS}
    return {**hooks, _STARTED: [HookMatcher(matcher="compact", hooks=[compacted])]}


async def _reminded(reminder_of: Remind, session: Any) -> str | None:
    """The reminder of a session, which ``PreCompact`` has imported; None where that failed."""
    try:
        return await reminder_of(session)
    except Exception as error:  # no reminder is worth an agent's turn
        _log.warning("a model of the Claude Agent SDK was reminded of nothing: %s", error)
        return None


async def import_quietly(import_session: Import, key: SessionListSubkeysKey) -> None:
    """Import a session; a failure is a warning, since an import is never worth an agent's turn."""
    try:
        await import_session(key)
    except Exception as error:
        _log.warning("a session of the Claude Agent SDK was not imported: %s", error)
