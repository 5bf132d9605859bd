"""The programs that call a hook as a command, with one JSON object on stdin."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple


class HookHost(NamedTuple):
    """A program: its name, which is that of its sessions' format, and what they hold in time.

    Both raise ``SessionStart`` with source ``compact``, and show its answer to the model. Where
    ``compaction_is_written`` the session's file has the compaction by then, so that what it took is
    known. Codex 0.169 writes it first; Claude Code 2.1.330 asks first
    (docs/decisions/0066-a-hook-tells-what-holds.md).
    """

    name: str
    compaction_is_written: bool


CLAUDE_CODE: Final = HookHost("claude-code", compaction_is_written=False)
CODEX: Final = HookHost("codex", compaction_is_written=True)

HOSTS: Final = MappingProxyType({one.name: one for one in (CLAUDE_CODE, CODEX)})
