"""Names in a text: words that hardly stand in two places by chance.

The rule is that of evidence recall: at least ten characters with a digit, ``_ / . :`` or camel
case; hex of 7 to 40 characters with a digit and a letter; numbers from six digits (four digits are
often a port, a year or a line).
"""

from __future__ import annotations

from typing import Final

from eventctx.text import pattern

# The shortest name has six characters, and most words of a text are shorter.
_RUN: Final = pattern(r"[A-Za-z0-9_./:@#~+$-]{6,}")
_NO_FIRST: Final = "/:+-"
_NO_LAST: Final = "./:@#~+$-"
_HEX: Final = pattern(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{7,40}")
_MARKED: Final = pattern(r"[\d_/.:]|[a-z][A-Z]")

LEAST: Final = 10
"""Characters of a name. With six, a third of the matches were by chance; with ten, a tenth."""

LEAST_NUMBER: Final = 6
"""Digits of a number."""


def names_in(text: str) -> set[str]:
    """The names in a text."""
    return {word for word in words_in(text) if is_name(word)}


def words_in(text: str) -> set[str]:
    """The words of a text that may be names."""
    # Cut by hand: an expression for the last letter would go to and fro in a long row of dots.
    found = {run.lstrip(_NO_FIRST).rstrip(_NO_LAST) for run in _RUN.findall(text)}
    return {word for word in found if len(word) >= LEAST_NUMBER}


def is_name(word: str) -> bool:
    """Whether a word is a name."""
    if len(word) >= LEAST and not word.isdigit():
        return _MARKED.search(word) is not None
    return len(word) >= LEAST_NUMBER and (word.isdigit() or _HEX.fullmatch(word) is not None)
