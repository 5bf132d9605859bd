"""An ordered diff: which of the old messages a new list still holds, in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

MAX_CANDIDATES = 32
"""How many equal old messages are considered for one new one; more are rare and cost time."""


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
