"""Files next to a transcript that tell of its session, too: its import reads them with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TASK: Final = "api_conversation_history.json"
"""The messages of one task of Cline or Roo Code."""

SCREEN: Final = "ui_messages.json"
EDITS: Final = "context_history.json"

_OF_TASK: Final = (SCREEN, EDITS, "task_metadata.json", "history_item.json")
_MESSAGES: Final = ".messages.json"
_COMPACTION: Final = ".compaction.json"


def companions(path: Path) -> list[Path]:
    """The files that are read with a transcript."""
    names: tuple[str, ...] = ()
    if path.name == TASK:
        names = _OF_TASK
    elif path.name.endswith(_MESSAGES):
        session = path.name.removesuffix(_MESSAGES)
        names = (f"{session}{_COMPACTION}", f"{session}.json")
    return [file for name in names if (file := path.with_name(name)).is_file()]


def owner_of(path: str) -> str:
    """The transcript that a file is read with, if it is there; else the file itself."""
    folder, _, name = path.rpartition(os.sep)
    owner = ""
    if name in _OF_TASK:
        owner = TASK
    elif name.endswith(_COMPACTION):
        owner = name.removesuffix(_COMPACTION) + _MESSAGES
    elif name.endswith(".json") and not name.endswith(_MESSAGES):
        owner = name.removesuffix(".json") + _MESSAGES
    own = f"{folder}{os.sep}{owner}"
    return own if owner and Path(own).is_file() else path
