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
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_bytes(b"".join([msgspec.json.encode(message) + b"\n" for message in messages]))
    partial.replace(path)
