"""The folders where programs keep the sessions that can be imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class KnownFolder(NamedTuple):
    """A folder of sessions and the program that writes it."""

    program: str
    path: Path


def known_folders(home: Path, environment: Mapping[str, str]) -> tuple[KnownFolder, ...]:
    """The folders of Claude Code, Codex, pi and Amplifier, whether they exist or not.

    ``CLAUDE_CONFIG_DIR`` and ``CODEX_HOME`` name other places, as they do for the programs.
    """
    claude = environment.get("CLAUDE_CONFIG_DIR") or home / ".claude"
    codex = environment.get("CODEX_HOME") or home / ".codex"
    return (
        KnownFolder("Claude Code", Path(claude) / "projects"),
        KnownFolder("Codex", Path(codex) / "sessions"),
        KnownFolder("pi", home / ".pi" / "agent" / "sessions"),
        KnownFolder("Amplifier", home / ".amplifier" / "projects"),
    )
