"""The answer to a hook: the session is imported, and a compaction answered with a reminder.

What a compaction took is told where the session's file has it by then; else every demand that holds
is (docs/decisions/0066-a-hook-tells-what-holds.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from eventctx.adapters.command_hooks.hosts import HookHost
from eventctx.adapters.command_hooks.payload import HookPayload
from eventctx.adapters.command_hooks.reminder import ALL, LOST, Words, reminder
from eventctx.errors import WrongExpectedVersion
from eventctx.importers.load import import_file

if TYPE_CHECKING:
    from eventctx.engine import Engine

_ATTEMPTS: Final = 3


async def hook_answer(
    engine: Engine, host: HookHost, payload: HookPayload
) -> dict[str, Any] | None:
    """Import the session's file; the JSON to answer with, None for none.

    Raises what ``import_file`` raises. A session that has no file, or none yet, is no error.
    """
    session = await _imported(engine, host, payload)
    if session is None or not payload.follows_compaction:
        return None
    if host.compaction_is_written:
        text = reminder(session, await lost_words(engine, session), LOST)
    else:
        text = reminder(session, await words_that_hold(engine, session), ALL)
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


async def lost_words(engine: Engine, session: str) -> list[Words]:
    """Of ``words_that_hold`` those that the view has in none of its messages and summaries.

    Raises StreamNotFound.
    """
    items = (await engine.lost(session)).items
    said = [one for one in items if one.kind == "instruction"]
    found = (await engine.instructions(session)).instructions
    words = [Words(one.number, one.text) for one in found if one.is_absent]
    first = min(said, key=lambda one: one.number, default=None)
    if first is None or first.state != "gone":
        return words
    task = Words(first.number, first.text)
    return words if task in words else [task, *words]


async def _imported(engine: Engine, host: HookHost, payload: HookPayload) -> str | None:
    """The session of the file, as far as it is written."""
    path = payload.transcript
    for attempt in range(_ATTEMPTS):
        if path is None or not path.is_file():
            return None
        try:
            return (await import_file(engine.store, path, format=host.name))[0].session
        except WrongExpectedVersion:
            # `eventctx watch` or a second hook imports the same file at the same time.
            if attempt == _ATTEMPTS - 1:
                raise
    return None
