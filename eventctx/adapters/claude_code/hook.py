"""The answer to a hook: the transcript is imported, and a compaction answered with a reminder.

``SessionStart`` with source ``compact`` is the one event around a compaction whose answer the model
is shown, and Claude Code 2.1.330 raises it before ``PostCompact`` and before it writes the summary
to the transcript (docs/decisions/0066-a-hook-tells-what-holds.md). So what the summary lacks is not
known at that time, and the model is told every demand that holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from eventctx.adapters.claude_code.payload import HookPayload
from eventctx.adapters.claude_code.reminder import Words, reminder
from eventctx.errors import WrongExpectedVersion
from eventctx.importers.formats.claude_code import NAME
from eventctx.importers.load import import_file

if TYPE_CHECKING:
    from eventctx.engine import Engine

_ATTEMPTS: Final = 3


async def hook_answer(engine: Engine, payload: HookPayload) -> dict[str, Any] | None:
    """Import the transcript; the JSON to answer with, None for none.

    Raises what ``import_file`` raises. A session that has no file yet is no error.
    """
    session = await _imported(engine, payload)
    if session is None or (payload.hook_event_name, payload.source) != ("SessionStart", "compact"):
        return None
    text = reminder(session, await words_that_hold(engine, session))
    if text is None:
        return None
    told = {"hookEventName": payload.hook_event_name, "additionalContext": text}
    return {"hookSpecificOutput": told}


async def words_that_hold(engine: Engine, session: str) -> list[Words]:
    """The person's first sentence, which is the task, and the demands that hold.

    Raises StreamNotFound.
    """
    said = [one for one in (await engine.lost(session)).items if one.kind == "instruction"]
    found = (await engine.instructions(session)).instructions
    holding = [one for one in found if one.taken_back is None and one.left is None]
    first = min((Words(one.number, one.text) for one in said), default=None)
    words = [Words(one.number, one.text) for one in holding]
    return words if first is None or first in words else [first, *words]


async def _imported(engine: Engine, payload: HookPayload) -> str | None:
    """The session of the transcript, as far as it is written."""
    path = payload.transcript
    for attempt in range(_ATTEMPTS):
        if not path.is_file():
            return None
        try:
            return (await import_file(engine.store, path, format=NAME))[0].session
        except WrongExpectedVersion:
            # `eventctx watch` or a second hook imports the same file at the same time.
            if attempt == _ATTEMPTS - 1:
                raise
    return None
