"""What the model used again of earlier results: names and lines that came from them.

A *needle* is a name (``messages.extracts``) or a line of at least 31 characters. It counts if
a message of the model uses it after the result that holds it left the view; if it did not come
from the model itself, which may know it unaided; if no system message holds it; and if it is rare:
at most 3 messages hold it, or a tenth of all (``evidence recall``).

Messages are read from the last to the first, so that only needles that were used later are kept:
the memory grows with what the model wrote, not with what its tools returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from eventctx.messages.extracts import names_in, words_in
from eventctx.messages.overlap import LEAST_SHARED, normal

_NUMBERED: Final = re.compile(r"^\s*\d+\s*[→|:\t]\s?")
LEAST_CARRIERS: Final = 3
RARE: Final = 10
"""A needle is rare if one message in so many, or fewer, holds it."""


class Needle:
    """One name or line: who used it, and which result held it last."""

    __slots__ = ("carriers", "first", "holder", "in_view", "text", "used")

    def __init__(self, text: str) -> None:
        self.text = text
        """It as the model wrote it last."""
        self.used: list[int] = []
        """Positions of the model's messages with it, falling."""
        self.carriers = 0
        self.first = ""
        self.holder: int | None = None
        self.in_view = False

    def used_behind(self, position: int) -> list[int]:
        """The positions behind ``position`` at which the model used it."""
        found: list[int] = []
        for one in self.used:
            if one <= position:
                break
            found.append(one)
        return found


class Needles:
    """All needles of a session; fed with its messages from the last to the first."""

    def __init__(self) -> None:
        self._found: dict[str, Needle] = {}
        self._messages = 0
        self._of_system: set[str] = set()

    def __getitem__(self, text: str) -> Needle | None:
        return self._found.get(text)

    def used_by_model(self, text: str, position: int, *, in_view: bool) -> None:
        """Take in a message of the model."""
        self._messages += 1
        for one, shown in needles_in(text).items():
            needle = self._found.get(one)
            if needle is None:
                needle = self._found[one] = Needle(shown)
            needle.used.append(position)
            needle.carriers += 1
            needle.first = "model"
            needle.in_view = needle.in_view or in_view

    def held(self, text: str, *, in_view: bool, by: int | None, since: int | None) -> None:
        """Take in a message that is not the model's.

        ``by`` is its number if it is a result; ``since`` is the position from which on a use of it
        counts, None where none does.
        """
        self._messages += 1
        for one in self._known_in(text):
            needle = self._found[one]
            needle.carriers += 1
            needle.first = "other"
            needle.in_view = needle.in_view or in_view
            if by is None or since is None or needle.holder is not None:
                continue
            if needle.used_behind(since):
                needle.holder = by

    def system(self, text: str) -> None:
        """Take in a system message, which is always in view."""
        self._of_system.update(needles_in(text))

    def _known_in(self, text: str) -> set[str]:
        """The needles in a text, of those that are known."""
        known = self._found.keys()
        return known & words_in(text) | known & {normal(line) for line in _long_lines(text)}

    def by_holder(self, beside: Iterable[str]) -> dict[int, dict[str, Needle]]:
        """The needles that count, by the result that held them last.

        ``beside`` are names of files, lower case: those are items of their own.
        """
        most = max(LEAST_CARRIERS, self._messages // RARE)
        files = set(beside)
        found: dict[int, dict[str, Needle]] = {}
        for text, needle in self._found.items():
            if needle.holder is None or needle.first == "model" or needle.carriers > most:
                continue
            if text in self._of_system or text.rsplit("/", 1)[-1].casefold() in files:
                continue
            found.setdefault(needle.holder, {})[text] = needle
        return found


def needles_in(text: str) -> dict[str, str]:
    """The names and the long lines of a text, as they are compared, and as they stand there."""
    found = {name: name for name in names_in(text)}
    for line in _long_lines(text):
        shown = " ".join(line.split())
        letters = sum(map(str.isalnum, shown))
        if len(shown) >= LEAST_SHARED and " " in shown and 2 * letters >= len(shown):
            found[normal(shown)] = shown
    return found


def _long_lines(text: str) -> Iterator[str]:
    """The lines that may be needles, without the number that a tool writes before them."""
    for line in text.splitlines():
        if len(line) >= LEAST_SHARED:
            yield _NUMBERED.sub("", line) if line.lstrip()[:1].isdigit() else line
