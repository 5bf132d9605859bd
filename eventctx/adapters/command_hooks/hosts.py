"""The programs that call a hook as a command, and the JSON object that they write to its stdin."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import InvalidSetting

MOST_BYTES: Final = 16 * 2**20
"""A larger payload is refused: a summary or a tool's result in it has far less."""


class HookPayload(msgspec.Struct, frozen=True):
    """The fields that are read of a payload; it has others, by event.

    ``source`` of a ``SessionStart`` is ``startup``, ``resume``, ``clear`` or ``compact``. Codex has
    no ``transcript_path`` for a session that it does not keep, Copilot none at a tool call.
    """

    hook_event_name: str
    transcript_path: str | None = None
    source: str | None = None
    session_id: str | None = None

    @property
    def follows_compaction(self) -> bool:
        """Whether the model is shown the answer, right after a compaction."""
        return (self.hook_event_name, self.source) == ("SessionStart", "compact")


_decode: Final = msgspec.json.Decoder(HookPayload).decode


def read_payload(data: bytes) -> HookPayload:
    """The payload of a hook. Raises InvalidSetting for anything else."""
    if len(data) > MOST_BYTES:
        raise InvalidSetting(f"payload: expected at most {MOST_BYTES} bytes, found more")
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSetting(
            "payload: expected the JSON of a hook, with `hook_event_name` and `transcript_path`; "
            f"found {len(data)} bytes that are not ({error})"
        ) from error


class HookHost(NamedTuple):
    """A program: its name, which is that of its sessions' format, and what they hold in time.

    Claude Code and Codex raise ``SessionStart`` with source ``compact``, and show its answer to the
    model. Where ``compaction_is_written`` the session's file has the compaction by then, so that
    what it took is known. Codex 0.169 writes it first; Claude Code 2.1.330 asks first
    (docs/decisions/0066-a-hook-tells-what-holds.md). The others raise nothing after a compaction
    whose answer the model sees: their hooks import the session. ``session_file`` names the file of
    a session by its id, for payloads that do not.
    """

    name: str
    compaction_is_written: bool = False
    session_file: Callable[[str], Path] | None = None

    def transcript(self, payload: HookPayload) -> Path | None:
        """The session's file; it is not there yet when a session begins."""
        if payload.transcript_path is not None:
            return Path(payload.transcript_path)
        if self.session_file is None or payload.session_id is None:
            return None
        return self.session_file(payload.session_id)


def _copilot_file(session: str) -> Path:
    home = os.environ.get("COPILOT_HOME")
    folder = Path(home) if home else Path.home() / ".copilot"
    return folder / "session-state" / Path(session).name / "events.jsonl"


CLAUDE_CODE: Final = HookHost("claude-code")
CODEX: Final = HookHost("codex", compaction_is_written=True)
_OTHERS: Final = (
    HookHost("copilot", session_file=_copilot_file),
    HookHost("cursor"),
    HookHost("gemini-cli"),
)

HOSTS: Final = MappingProxyType({one.name: one for one in (CLAUDE_CODE, CODEX, *_OTHERS)})
