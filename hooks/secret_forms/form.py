"""The shape of a form of secrets, and what all forms share."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Form(NamedTuple):
    """One form. The last group of ``pattern`` that matched is the secret, else the whole match.

    An empty group is no secret: the search goes on behind the match. A pattern uses it to pass over
    a long run of characters that it had to read to find that there is no secret in it; without it,
    every start inside the run would read the rest of the run again.

    ``hints``: a text without any of them holds no such secret. ``folded``: hints are searched in
    the text in lower case. ``before``: characters that belong to the secret if they stand directly
    before the match, up to ``MAX_BEFORE`` of them; a match with none before it is no secret.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    folded: bool = False
    before: str = ""


class FormGroup(NamedTuple):
    """Forms that can only match a text with one of the marks, and with a match of ``gate``.

    A mark of one character costs next to nothing to rule out, a longer one much more.
    """

    marks: tuple[str, ...]
    forms: tuple[Form, ...]
    gate: re.Pattern[str] | None = None


MARKER: Final = re.compile(
    r"\[redacted:(?:api-key|email|password|pattern|private-key|secret|token)\]"
)
"""The replacement of a secret. A text of this form is never redacted again."""

MAX_BEFORE: Final = 64
SHORT: Final = 20
"""A text of fewer characters can hold only what ``may_hold`` asks for: a value beside its name, a
bearer token, an e-mail address, a password on a command line or between tags."""


def may_hold(text: str) -> bool:
    """Whether a text may hold a secret: a quick test for the many short texts that hold none."""
    return len(text) >= SHORT or (
        "=" in text
        or ":" in text
        or "@" in text
        or "--" in text
        or " -p" in text
        or "</" in text
        or " is " in text
        or "earer " in text
    )


def from_start(prefix: str) -> str:
    r"""A pattern for ``prefix`` (of one width) where a word begins.

    The test stands behind the prefix, because a search for a pattern that begins with a letter is
    several times as fast as one for a pattern that begins with a look behind. In JSON inside JSON,
    a line break before a secret is a backslash and the letter n.
    """
    return rf"{prefix}(?:(?<![A-Za-z0-9]{prefix})|(?<=\\[nrt]{prefix}))"


def in_any_case(pattern: str) -> str:
    """``pattern``, which begins with a letter, in upper and lower case; quick to search for.

    With a flag for the whole pattern the search would try it at every character.
    """
    return f"[{pattern[0].lower()}{pattern[0].upper()}](?i:{pattern[1:]})"
