"""The outcome of a tool call: its exit status, whether it failed, and the first line of the error.

Programs write the status in forms of their own: ``Exit code 1`` (Claude Code), ``Process exited
with code 1`` and JSON with ``exit_code`` (Codex), ``Command exited with code 1`` (pi),
``<returncode>1</returncode>`` (mini-swe-agent), ``completed with exit code 1`` (OpenHands). It is
looked for near the beginning and the end only, where they put it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from eventctx.messages.parts import Part, parts_of_result
from eventctx.messages.tool_results import failure_of_row
from eventctx.text import pattern

_NEAR: Final = 400

_STATUS: Final = pattern(
    r"(?:^\s*Exit code:? ?|Process exited with code |Command exited with code "
    r"|(?:completed|finished|failed) with exit code |<returncode>|\"exit_code\": ?"
    r"|\"returncode\": ?)(-?\d{1,10})",
    re.MULTILINE,
)
_RAISED: Final = pattern(
    r"^(?:\*\* \()?(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b|\berror(?: \w+|\[\w+\])?: "
)
_ERROR: Final = pattern(
    r"\b\w*(?:Error|Exception)\b|\b(?:error|fatal|panic|failed|failure|cannot|denied)\b"
    r"|\bFAIL(?:ED)?\b|not found|No such file",
)
_NO_ERROR: Final = pattern(r"\b(?:0|no) (?:errors?|failed|failures?)\b", re.IGNORECASE)
_ABOUT: Final = pattern(
    r"^[\W_]*(?:exit code|process exited|command exited|traceback \(|chunk id|wall time|output:"
    r"|original token|<returncode>|<output>)|^\d+\s*[│|]|^> \S+@\S+ \w",
    re.IGNORECASE,
)


class CallOutcome(NamedTuple):
    """The end of a call; ``status`` is None where no exit status is told."""

    status: int | None = None
    failed: bool = False
    error: str = ""


def text_of_result(part: Part) -> str:
    """The text of a result; of several blocks, their texts on lines of their own."""
    value = part.value
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join([one for one in value.values() if isinstance(one, str)])
    texts: list[str] = []
    for inner in parts_of_result(part):
        if inner.kind == "text":
            texts.append(inner.value)
        elif inner.kind == "result":
            texts.append(text_of_result(inner))
    return "\n".join(texts)


def outcome_of(part: Part, text: str) -> CallOutcome:
    """The outcome that a result tells, with the text of it."""
    found = _STATUS.search(text[:_NEAR]) or _STATUS.search(text[-_NEAR:])
    status = int(found[1]) if found else None
    if isinstance(part.value, dict) and isinstance(part.value.get("exit_code"), int):
        status = part.value["exit_code"]
    # A message of role "tool" has no field for a failure; there the text is all that tells of it.
    told = failure_of_row(text) if part.dialect is None and not part.type else None
    failed = part.failed or status not in (None, 0) or told is not None
    said = text if told is None else told.message
    return CallOutcome(status, failed, _error_line(said) if failed else "")


def _error_line(text: str) -> str:
    """The first line that names an error, else the first that says anything."""
    if "\n" not in text:
        text = text.replace("\\n", "\n")  # a program that prints its message as JSON
    lines = [" ".join(line.split()) for line in text.splitlines()]
    told = [line for line in lines if line and not _ABOUT.search(line)]
    raised = next((line for line in told if _RAISED.search(line)), None)
    if raised is not None:
        return raised
    for place, line in enumerate(told):
        if _ERROR.search(line) and not _NO_ERROR.search(line):
            return f"{line} {told[place + 1]}" if line.endswith(":") and told[place + 1 :] else line
    return told[0] if told else ""
