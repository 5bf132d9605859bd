"""What a check says: holds, does not hold, or was not checked; and what was seen."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["required", "recommended"]
Verdict = Literal["holds", "does not hold", "not checked"]


class Finding(msgspec.Struct, frozen=True):
    """What came of one check.

    ``check`` names it; ``what`` says in words what holds or does not; ``seen`` is what was seen
    instead, or why it was not checked. ``source`` is who checked it.
    """

    check: str
    level: Level
    what: str
    verdict: Verdict
    seen: str = ""
    source: Literal["eventctx", "amplifier-core"] = "eventctx"


class Broken(Exception):
    """Raised by a check: the rule does not hold, and this is what was seen."""


class NotChecked(Exception):
    """Raised by a check that cannot be made here; says why."""


def all_required_hold(findings: list[Finding]) -> bool:
    """Whether no required check failed. What was not checked does not count against a module."""
    return not any(one.level == "required" and one.verdict == "does not hold" for one in findings)


def sees(condition: object, seen: str) -> None:
    """Raise Broken with what was seen, unless the condition holds."""
    if not condition:
        raise Broken(seen)
