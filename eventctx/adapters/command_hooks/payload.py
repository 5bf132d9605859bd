"""What a program tells a hook: one JSON object on stdin, as Claude Code and Codex write it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from eventctx.errors import InvalidSetting

MOST_BYTES: Final = 16 * 2**20
"""A larger payload is refused: a summary or a tool's result in it has far less."""


class HookPayload(msgspec.Struct, frozen=True):
    """The fields that are read of a payload; it has others, by event.

    ``source`` of a ``SessionStart`` is ``startup``, ``resume``, ``clear`` or ``compact``. Codex has
    no ``transcript_path`` for a session that it does not keep.
    """

    hook_event_name: str
    transcript_path: str | None = None
    source: str | None = None

    @property
    def transcript(self) -> Path | None:
        """The session's file; it is not there yet when a session begins."""
        return None if self.transcript_path is None else Path(self.transcript_path)

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
