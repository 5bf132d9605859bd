"""What Claude Code tells a hook: one JSON object on stdin, as version 2.1.330 writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from eventctx.errors import InvalidSetting

MOST_BYTES: Final = 16 * 2**20
"""A larger payload is refused: a summary or a tool's result in it has far less."""


class HookPayload(msgspec.Struct, frozen=True):
    """The fields that are read of a payload; it has others, by event.

    ``source`` of a ``SessionStart`` is ``startup``, ``resume``, ``clear`` or ``compact``.
    """

    hook_event_name: str
    transcript_path: str
    source: str | None = None

    @property
    def transcript(self) -> Path:
        """The session's file; it is not there yet when a session begins."""
        return Path(self.transcript_path)


_decode: Final = msgspec.json.Decoder(HookPayload).decode


def read_payload(data: bytes) -> HookPayload:
    """The payload of a hook. Raises InvalidSetting for anything else."""
    if len(data) > MOST_BYTES:
        raise InvalidSetting(f"payload: expected at most {MOST_BYTES} bytes, found more")
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSetting(
            "payload: expected the JSON of a hook of Claude Code, with `hook_event_name` and "
            f"`transcript_path`; found {len(data)} bytes that are not ({error})"
        ) from error
