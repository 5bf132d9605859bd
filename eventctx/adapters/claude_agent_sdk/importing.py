"""A session of the importer's, made of the lines in the log.

The lines are laid out for the importer as Claude Code lays out its files. They come from the log,
so every host that resumes a session imports the same bytes, and a second import finds the first.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eventctx.importers.formats.table import CLAUDE_CODE
from eventctx.importers.load import ImportSummary, import_file
from eventctx.log.ids import check_session_id
from eventctx.log.store import EventStore

_AGENT: Final = re.compile(r"subagents/([\w.-]{1,200})")


async def imported(
    store: EventStore, session: str, parts: Mapping[str | None, list[bytes]]
) -> list[ImportSummary]:
    """Import the lines of a main transcript (key None) and of those below its subpaths.

    Raises InvalidSessionId, and what ``import_file`` raises.
    """
    check_session_id(session)
    if not parts.get(None):
        return []
    with tempfile.TemporaryDirectory(prefix="eventctx-") as folder:
        path = await asyncio.to_thread(_laid_out, Path(folder), session, parts)
        return await import_file(store, path, format=CLAUDE_CODE)


def _laid_out(folder: Path, session: str, parts: Mapping[str | None, list[bytes]]) -> Path:
    """Write the files, and return the main one. What is no agent's file has no place there."""
    for subpath, lines in parts.items():
        agent = None if subpath is None else _AGENT.fullmatch(subpath)
        if subpath is None:
            path = folder / f"{session}.jsonl"
        elif agent is not None:
            path = folder / session / "subagents" / f"{agent[1]}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            continue
        path.write_bytes(b"".join([line + b"\n" for line in lines]))
    return folder / f"{session}.jsonl"
