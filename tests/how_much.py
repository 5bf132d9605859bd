"""How much of what `make faults` tries an ordinary run of the tests tries, where all takes minutes.

`make faults` runs every test file that imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.json import encode

from tests.faults.counts import FULL

T = TypeVar("T")

MOST_MESSAGES = 200
"""Of a recorded session in an ordinary run; what a request costs grows with what is before it."""

LEAST_MESSAGES = 40
"""Of one that has as many, however few of them fill a budget."""


def tried(place: int, other: int, choice: int, *, choices: int) -> bool:
    """Whether to try a pair, by its two places in their lists, with one of so many ``choices``.

    An ordinary run tries every pair with one choice, and every choice with some pair of every row
    and column. A full one tries all.
    """
    return FULL or (place + other) % choices == choice


def some(usual: int, full: int) -> int:
    """How many of a kind, as Hypothesis's examples, this run tries."""
    return full if FULL else usual


def beginning(messages: Sequence[T], budget: int) -> list[T]:
    """As many messages of a session as this run plays with requests of ``budget`` tokens.

    Most of a small budget's compactions do what the first four or five did.
    """
    if FULL:
        return list(messages)
    played: list[T] = []
    characters = 0
    for message in messages[:MOST_MESSAGES]:
        played.append(message)
        characters += len(encode(message))
        if characters > 8 * budget and len(played) >= LEAST_MESSAGES:
            break
    return played
