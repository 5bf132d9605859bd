"""What a Claude model accepts, read from its name."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_NAME: Final = re.compile(
    r"claude-(?:(?P<old>\d(?:[-.]\d)?)-)?(?P<family>opus|sonnet|haiku|fable|mythos)"
    r"(?:-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?)?(?!\d)"
)


class ClaudeModel(msgspec.Struct, frozen=True):
    """A model's family and version; ``version`` is empty where its name does not say it."""

    family: str = ""
    version: tuple[int, ...] = ()

    @property
    def thinks_manually(self) -> bool:
        """Whether ``thinking: enabled`` binds the tool loop (Claude 3.7 to 4.5, and unknown)."""
        return not self.version or (3, 7) <= self.version < (4, 6)

    @property
    def refuses_enabled(self) -> bool:
        """Whether only adaptive thinking is taken."""
        return self.version >= (4, 7)

    @property
    def preserves_thinking(self) -> bool:
        """Whether thinking that is sent back gets a prefix check."""
        since = (5, 1) if self.family in ("fable", "mythos") else (5, 5)
        return self.version >= since

    @property
    def takes_prefill(self) -> bool:
        """Whether a request may end with an assistant message."""
        return self.version < (4, 6)

    @property
    def takes_system_messages(self) -> bool:
        """Whether ``system`` may be a role in the middle of a conversation."""
        if not self.version:
            return True
        return self.version >= (4, 8) and (self.family, self.version) != ("sonnet", (5, 0))


def read_model(name: object) -> ClaudeModel:
    """The model of a name, with any prefix and date; an empty one where it is no Claude."""
    found = _NAME.search(name) if isinstance(name, str) else None
    if found is None:
        return ClaudeModel()
    if found["old"]:
        return ClaudeModel(found["family"], _version(*re.split(r"[-.]", found["old"])))
    if not found["major"]:
        return ClaudeModel(found["family"])
    return ClaudeModel(found["family"], _version(found["major"], found["minor"]))


def _version(major: str, minor: str | None = None) -> tuple[int, ...]:
    return int(major), int(minor or 0)
