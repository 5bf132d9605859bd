"""Writes the transcript to a file when a compaction was applied (``export_on_compact``).

The log keeps everything anyway; context-persistent has this setting, for users who want a copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from eventctx.log.private_files import make_folder, whole_file

_log = logging.getLogger("eventctx")


async def write_transcript(
    folder: str, session: str, position: int, messages: Sequence[dict[str, Any]]
) -> Path | None:
    """Write ``messages``, one a line, to ``SESSION-POSITION.jsonl`` in ``folder``.

    A file that cannot be written is logged and None is returned: this must not end an agent's turn.
    """
    path = Path(folder) / f"{session}-{position}.jsonl"
    try:
        await asyncio.to_thread(_write, path, messages)
    except OSError as error:
        _log.warning("export_on_compact: %s cannot be written: %s", path, error)
        return None
    return path


def _write(path: Path, messages: Sequence[dict[str, Any]]) -> None:
    make_folder(path.parent)
    with whole_file(path) as file:
        file.writelines([msgspec.json.encode(message) + b"\n" for message in messages])
