"""The answer to a hook: the session is imported, and a compaction answered with a reminder.

The reminder tells what the compaction took, where the session's file has it by then; else it tells
every demand that holds (docs/decisions/0066-a-hook-tells-what-holds.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventctx.adapters.command_hooks.hosts import HookHost, HookPayload
from eventctx.adapters.command_hooks.reminder import (
    ALL,
    LOST,
    lost_words,
    reminder,
    words_that_hold,
)
from eventctx.errors import InvalidSetting, WrongExpectedVersion
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
    return {
        "hookSpecificOutput": {
            "hookEventName": payload.hook_event_name,
            "additionalContext": text,
        }
    }


async def _imported(engine: Engine, host: HookHost, payload: HookPayload) -> str | None:
    """The session of the file, as far as it is written."""
    path = host.transcript(payload)
    for attempt in range(_ATTEMPTS):
        if path is None or not _is_there(path):
            return None
        try:
            done = await import_file(
                engine.store, path, format=host.name, noted=engine.note_receipt
            )
            return done[0].session
        except WrongExpectedVersion:
            # `eventctx watch` or a second hook imports the same file at the same time.
            if attempt == _ATTEMPTS - 1:
                raise
    return None


def _is_there(path: Path) -> bool:
    """Whether there is a file. Raises InvalidSetting where the folder cannot be read."""
    try:
        return path.is_file()
    except OSError as error:  # no right to look into the folder, a name that is too long
        raise InvalidSetting(
            f"transcript: expected the path of a file that can be read, found {str(path)[:200]!r}: "
            f"{error.strerror}"
        ) from error
