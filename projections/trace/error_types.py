"""The type of an error, as traces and metrics name it: a class or a code, never a sentence."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from eventctx.projections.trace import semconv as conv

MAX_CHARACTERS: Final = 128
"""Most characters of a type."""

_CODE: Final = re.compile(rf"[\w.:-]{{1,{MAX_CHARACTERS}}}")
_CLASS_FIRST: Final = re.compile(r"((?:\w+\.)*(?:_*[A-Z]\w*|\w*(?:error|exception))|[45]\d\d):\s")
_CLASS_ALONE: Final = re.compile(
    r"(?=\w*[a-z0-9][A-Z]|[\w.]*_|\w*Error|[\w.]*\.[A-Z])[A-Za-z_][\w.]*"
)
"""A word that no sentence has: ``LimitsExceeded``, ``exit_cost``, ``httpx.ReadTimeout``."""
_SAYS_NOTHING: Final = ("", "Error")
"""Recorded where the one who recorded the error knew no type."""


class NamedError(NamedTuple):
    """An error's type, and its words without it; None where the type is all that is known."""

    type: str
    words: str | None


def error_of(
    recorded: str | None, message: str | None, otherwise: str = conv.ERROR_OTHER
) -> NamedError:
    """The error of a record: the recorded type, else one that its text names, else ``otherwise``.

    Hosts may have recorded a message as the type. A text names a class or an HTTP status at its
    start, ``ValueError: no``, or is the name alone.
    """
    kind, text = recorded or "", message or ""
    if not _CODE.fullmatch(kind):
        kind, text = "", text or kind
    if kind in _SAYS_NOTHING:
        kind = _named_in(text)
    words = text.removeprefix(kind).removeprefix(":").lstrip() if _begins(text, kind) else text
    return NamedError(kind or otherwise, words or None)


def _named_in(text: str) -> str:
    if _CLASS_ALONE.fullmatch(text, endpos=MAX_CHARACTERS + 1) and len(text) <= MAX_CHARACTERS:
        return text
    found = _CLASS_FIRST.match(text, 0, MAX_CHARACTERS + 2)
    return "" if found is None else found[1]


def _begins(text: str, kind: str) -> bool:
    return bool(kind) and (text == kind or text.startswith(f"{kind}: "))
