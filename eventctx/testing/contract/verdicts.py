"""The verdict of a check (holds, does not hold, not checked), and its observation."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb
from typing import Final, Literal

import msgspec

_HERE: Final = Path(__file__).parent

Level = Literal["required", "recommended"]
Verdict = Literal["holds", "does not hold", "not checked"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check.

    ``check`` is its name; ``what`` is the rule in words; ``seen`` is the observation that breaks
    the rule, or the reason why it was not checked. ``source`` is the package that checked it.
    ``heading`` is where the contract has the rule; empty for a rule of hosts, or of that package.
    """

    check: str
    level: Level
    what: str
    verdict: Verdict
    seen: str = ""
    source: Literal["eventctx", "amplifier-core"] = "eventctx"
    heading: str = ""


class Broken(Exception):
    """Raised by a check whose rule does not hold; the text is the observation."""


class NotChecked(Exception):
    """Raised by a check that cannot be made here; the text is the reason."""


def all_required_hold(findings: list[Finding]) -> bool:
    """Whether no required check failed. A check that was not made does not count as failed."""
    return not any(one.level == "required" and one.verdict == "does not hold" for one in findings)


def raised(error: BaseException) -> str:
    """An error in words, with the line of the module's code that it comes from, if it is known."""
    text = f"raised {type(error).__name__}: {error}"
    places = [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if _HERE not in Path(frame.f_code.co_filename).parents
        and not frame.f_code.co_filename.startswith("<")
    ]
    return f"{text} ({places[-1]})" if places else text


def sees(condition: object, seen: str) -> None:
    """Raise Broken with the observation ``seen``, unless the condition holds."""
    if not condition:
        raise Broken(seen)
