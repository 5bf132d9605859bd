"""The common part of two lists, in order, and of two texts, in a row."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

Key = TypeVar("Key", bound=Hashable)

# -- lists: an ordered diff ----------------------------------------------------------------------

MAX_CANDIDATES = 32
"""Equal old messages that are considered for one new one; more are rare and cost time."""


def match_in_order(old: Sequence[Key | None], new: Sequence[Key]) -> list[int | None]:
    """For each of ``new`` the index in ``old`` that it equals, or None; indexes only rise.

    A longest common subsequence (by Hunt and Szymanski) between the common head
    and tail, so that the usual cases (the same list, a few more at the end, a row put in front)
    cost one pass. None in ``old`` (an erased body) equals nothing.
    """
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    middle = _longest(old[head : len(old) - tail], new[head : len(new) - tail])
    matched: list[int | None] = list(range(head))
    matched += [None if place is None else place + head for place in middle]
    matched += range(len(old) - tail, len(old))
    return matched


def _longest(old: Sequence[Key | None], new: Sequence[Key]) -> list[int | None]:
    places: dict[Key, list[int]] = {}
    for place, data in enumerate(old):
        if data is not None:
            places.setdefault(data, []).append(place)
    # ends[k] is the smallest old index at which an increasing chain of length k + 1 ends.
    ends: list[int] = []
    links: list[tuple[int, int, int]] = []
    at_length: list[int] = []
    for row, data in enumerate(new):
        candidates = places.get(data, [])
        if len(candidates) > MAX_CANDIDATES:
            after = bisect_left(candidates, ends[-1] + 1 if ends else 0)
            candidates = candidates[max(0, after - MAX_CANDIDATES // 2) :][:MAX_CANDIDATES]
        for place in reversed(candidates):
            length = bisect_left(ends, place)
            before = at_length[length - 1] if length else -1
            links.append((row, place, before))
            if length == len(ends):
                ends.append(place)
                at_length.append(len(links) - 1)
            elif place < ends[length]:
                ends[length] = place
                at_length[length] = len(links) - 1
    matched: list[int | None] = [None] * len(new)
    link = at_length[-1] if at_length else -1
    while link >= 0:
        row, place, link = links[link]
        matched[row] = place
    return matched


def runs_of_numbers(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """``[first, last]`` runs of consecutive numbers, in the order given."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return tuple((first, last) for first, last in runs)


# -- texts: long shared parts, such as copies of erased words ------------------------------------
# Texts are compared without regard to case and white space, since an excerpt is often one line. A
# short text is in many others by chance, so it is compared as a whole; a token without white space,
# such as a key, is looked for as a whole. Paths and addresses are not looked for: many records of
# one session name the same file.

LEAST_SHARED: Final = 31
"""Characters in a row that two texts must share. Less would find common phrases everywhere."""

LEAST_WHOLE: Final = 6
"""Shortest text that is looked for at all."""

_GRAM: Final = 24
_STEP: Final = LEAST_SHARED - _GRAM + 1

_NO_CONTENTS: Final = frozenset(
    {"type", "role", "id", "name", "tool_use_id", "tool_call_id", "call_id", "model", "signature"}
)
"""Keys of a message whose values tie it to others, or classify it."""


_SAID: Final = frozenset({"content", "text", "thinking", "output", "refusal", "summary"})
"""Keys of words that somebody said or a tool answered."""

_PLACES: Final = ("/", "./", "../", "~", "http://", "https://", "file:", "C:", "D:")


_NAME: Final = re.compile(r"[^\s\"'`<>()\[\]{},;]{6,}")


def _names(text: str) -> set[str]:
    """Words that mean one thing: keys, numbers, addresses, anything that is more than letters."""
    found = {one.strip(".:!?").casefold() for one in _NAME.findall(text)}
    return {one for one in found if len(one) >= LEAST_WHOLE and not one.isalpha()}


class Overlap:
    """The texts to look for."""

    def __init__(self, texts: Iterable[str]) -> None:
        texts = list(texts)
        self._names = {name for text in texts for name in _names(text)}
        given = {normal(text) for text in texts}
        self._long = {text for text in given if len(text) >= _GRAM}
        self._short = {text for text in given - self._long if len(text) >= LEAST_WHOLE}
        self._tokens = {text for text in self._long if " " not in text}
        self._grams: set[str] = set()
        for text in self._long - self._tokens:
            last = len(text) - _GRAM
            self._grams.update(text[at : at + _GRAM] for at in range(0, last + 1, _STEP))
            self._grams.add(text[last:])

    def shares(self, text: str) -> bool:
        """Whether ``text`` shares ``LEAST_SHARED`` characters with one given, or is a short one."""
        text = normal(text)
        if text in self._short or any(token in text for token in self._tokens):
            return True
        grams = self._grams
        return bool(grams) and any(
            text[at : at + _GRAM] in grams for at in range(len(text) - _GRAM + 1)
        )

    def names(self, text: str) -> bool:
        """Whether ``text`` names one thing that the given texts name: a key, a number, a file."""
        return not self._names.isdisjoint(_names(text))

    def holds(self, text: str) -> bool:
        """Whether one of the given texts is in ``text`` as a whole, or is it if it is short."""
        text = normal(text)
        return text in self._short or any(whole in text for whole in self._long)


def words_in(value: Any, key: str = "content") -> Iterator[str]:
    """The texts of a message that are worth looking for elsewhere.

    Those that were said, however short; of arguments and other fields the long ones that name no
    file or address.
    """
    if isinstance(value, str):
        if key in _SAID or (len(value) >= _GRAM and not value.startswith(_PLACES)):
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from words_in(item, key)
    elif isinstance(value, dict):
        for inner, item in value.items():
            if inner not in _NO_CONTENTS or not isinstance(item, str):
                yield from words_in(item, inner)


def texts_in(value: Any) -> Iterator[str]:
    """The texts of a decoded message or record, without ids and types."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _NO_CONTENTS or not isinstance(item, str):
                yield from texts_in(item)


def normal(text: str) -> str:
    """The text as it is compared: in one case, each run of white space one blank."""
    return " ".join(text.split()).casefold()
