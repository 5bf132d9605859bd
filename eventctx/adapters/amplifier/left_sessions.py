"""The folders in which Amplifier left a session, for those who bring it over.

Amplifier's command line and context-persistent name a project's folder each in its own way, so the
files of one session may be in two folders.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

from eventctx.text import without_password

_PROJECTS: Final = (".amplifier", "projects")


def folder_with(file: str, session: str, home: Path | None = None) -> Path | None:
    """The folder that Amplifier keeps a session in, with a file of this name; None without any."""
    try:
        projects = (home or Path.home()).joinpath(*_PROJECTS)
        folders = [one.joinpath("sessions", session) for one in sorted(projects.iterdir())]
        return next((one for one in folders if any(one.rglob(file))), None)
    except (OSError, ValueError, RuntimeError):
        return None  # there is none, the user has no home, or the id cannot name a folder


def command_to_take_over(session: str, mirrored: str, store: str) -> str:
    """The command line that makes ours a session that mirrors the file ``mirrored``."""
    folder = folder_with(mirrored, session)
    path = "ITS-FOLDER" if folder is None else shlex.quote(os.fspath(folder))
    return f"eventctx import --take-over {path} --store {shlex.quote(without_password(store))}"
