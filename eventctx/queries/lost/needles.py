"""Names and lines of earlier results that the model used again.

A *needle* is a name (``messages.extracts``) or a line of at least 31 characters. It counts if
a message of the model uses it after the result that holds it left the view; if it did not come
from the model itself, which may know it unaided; if no system message holds it; and if it is rare:
at most 3 messages hold it, or a tenth of all (``evidence recall``).

Of what tools returned no text is kept: only *marks*, the 64 bits by which Python tells texts apart,
with a key that every process draws anew. Two of ten million texts share one with a chance of one in
a hundred thousand. A text is here only once the model wrote it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from eventctx.messages.extracts import long_lines, names_in
from eventctx.messages.overlap import LEAST_SHARED, normal

LEAST_CARRIERS: Final = 3
RARE: Final = 10
"""A needle is rare if one message in so many, or fewer, holds it."""


class Needle:
    """One name or line: the model's messages with it, and the other messages that hold it.

    ``text`` is it as the model wrote it last, ``key`` as it is compared. ``users`` are numbers of
    messages, ``used`` their positions, ``holders`` the numbers of others; all rise.
    """

    __slots__ = ("holders", "key", "text", "used", "users")

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        self.text = text
        self.users = array("q")
        self.used = array("q")
        self.holders = array("q")

    def carriers(self) -> Iterator[int]:
        """The messages with it, up to the last one of the model."""
        yield from self.users
        yield from self.holders[: bisect_left(self.holders, self.users[-1])]

    def count(self) -> int:
        """How many messages ``carriers`` gives."""
        return len(self.users) + bisect_left(self.holders, self.users[-1])

    def used_behind(self, position: int) -> array[int]:
        """The positions after ``position`` at which the model used it."""
        return self.used[bisect_right(self.used, position) :]


class HeldNeedles(NamedTuple):
    """The needles that may count, by the results that hold them.

    ``last_used`` is by result the last position at which the model used one of them.
    """

    by_result: Mapping[int, list[Needle]]
    last_used: Mapping[int, int]


class Needles:
    """All needles of a session; fed with its messages in their order."""

    def __init__(self) -> None:
        self._known: dict[str, Needle] = {}
        self._marked: dict[int, Needle] = {}
        self._messages = 0
        self._of_system: set[str] = set()
        self._others: list[tuple[int, array[int]]] = []
        self._results: set[int] = set()
        self._fresh: set[int] = set()
        self._looked_through = 0

    def get(self, text: str) -> Needle | None:
        """The needle with this text, if the model ever used it."""
        return self._known.get(text)

    def system(self, found: Collection[str]) -> None:
        """Take in the needles of a system message, which is always in view."""
        self._of_system.update(found)

    def used_by_model(self, number: int, position: int, found: Mapping[str, str]) -> None:
        """Take in the needles of a message of the model."""
        self._messages += 1
        for key, text in found.items():
            needle = self._known.get(key)
            if needle is None:
                needle = self._known[key] = self._marked[hash(key)] = Needle(key, text)
                self._fresh.add(hash(key))
            needle.text = text
            needle.users.append(number)
            needle.used.append(position)

    def held(self, number: int, marks: array[int], *, is_result: bool) -> None:
        """Take in the marks of a message that is not the model's."""
        self._messages += 1
        self._others.append((number, marks))
        if is_result:
            self._results.add(number)

    def look_through(self) -> None:
        """Find the holders of all needles that came, and what the messages that came hold."""
        marked = self._marked
        if self._fresh:
            for number, marks in self._others[: self._looked_through]:
                for mark in self._fresh.intersection(marks):
                    marked[mark].holders.append(number)
        for number, marks in self._others[self._looked_through :]:
            for mark in marks:
                if mark in marked:
                    marked[mark].holders.append(number)
        self._looked_through = len(self._others)
        self._fresh = set()

    def by_result(self, files: Collection[str]) -> HeldNeedles:
        """The needles that may count, if the results that hold them left before they were used.

        ``files`` are their names, lower case: those are items of their own.
        """
        most = max(LEAST_CARRIERS, self._messages // RARE)
        results = self._results
        found: dict[int, list[Needle]] = {}
        last_used: dict[int, int] = {}
        for key, needle in self._known.items():
            holders = needle.holders
            if not holders or holders[0] > needle.users[0] or needle.count() > most:
                continue
            if key in self._of_system or key.rsplit("/", 1)[-1].casefold() in files:
                continue
            last, end = needle.used[-1], needle.users[-1]
            for number in holders:
                if number > end:
                    break
                if number in results:
                    found.setdefault(number, []).append(needle)
                    last_used[number] = max(last, last_used.get(number, -1))
        return HeldNeedles(found, last_used)


def marks_in(text: str) -> array[int]:
    """The marks of all that may be a needle in a text."""
    found = {*map(hash, names_in(text))}
    for line in long_lines(text):
        plain = normal(line)
        # Folding the case of a text may make it longer, never shorter.
        if len(plain) >= LEAST_SHARED and " " in plain:
            found.add(hash(plain))
    return array("q", found)
