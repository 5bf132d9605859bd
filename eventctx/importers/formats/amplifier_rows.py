"""A line of Amplifier's ``events.jsonl``, in either dialect of it."""

from __future__ import annotations

import re
from typing import Any, Final

from eventctx.importers.source.lines import nanoseconds, object_or_empty, text_or_none

_EVENT: Final = re.compile(r"[a-z_]+:[a-z_:]+")
_AREAS: Final = frozenset(
    (
        *("session", "prompt", "execution", "provider", "llm", "content_block", "tool"),
        *("orchestrator", "context", "cleanup", "mentions", "artifact", "thinking", "plan"),
        *("approval", "cancel", "user", "policy", "delegate", "skill", "skills", "mcp", "hook"),
    )
)
"""The first parts of event names, in Amplifier's core and in its modules."""


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of an event log."""
    name = name_of(value)
    if name is None or _EVENT.fullmatch(name) is None:
        return False
    return is_known(name) and "role" not in value


def is_known(name: str) -> bool:
    """Whether an event of this name is one of Amplifier's."""
    return name.partition(":")[0] in _AREAS


def name_of(row: dict[str, Any]) -> str | None:
    """The event's name; one dialect has it in ``type``."""
    return text_or_none(row.get("event")) or text_or_none(row.get("type"))


_REQUEST_KEYS: Final = ("raw", "params", "request")


class AmplifierRow:
    """The parts of a line that every handler needs. ``data`` is the line itself by default."""

    def __init__(self, line: int, row: dict[str, Any]) -> None:
        data = row.get("data")
        self.line = line
        self.row = row
        self.data: dict[str, Any] = data if isinstance(data, dict) else row
        self.time = nanoseconds(row.get("ts", row.get("timestamp")))

    @property
    def request_key(self) -> str | None:
        """Where the data hold the request as it was sent; None where they are it, or have none."""
        return next((key for key in _REQUEST_KEYS if isinstance(self.data.get(key), dict)), None)

    @property
    def request(self) -> dict[str, Any]:
        """The request as it was sent, if it was logged; else the data themselves."""
        key = self.request_key
        return self.data if key is None else object_or_empty(self.data[key])
