"""How much of what `make faults` tries an ordinary run of the tests tries, where all takes minutes.

`make faults` runs every test file that imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tests.faults.counts import FULL

T = TypeVar("T")

MOST_MESSAGES = 200
"""Of a recorded session in an ordinary run; what a request costs grows with what is before it."""


def tried(place: int, other: int, choice: int, *, choices: int) -> bool:
    """Whether to try a pair, by its two places in their lists, with one of so many ``choices``.

    An ordinary run tries every pair with one choice, and every choice with some pair of every row
    and column. A full one tries all.
    """
    return FULL or (place + other) % choices == choice


def some(usual: int, full: int) -> int:
    """How many of a kind, as Hypothesis's examples, this run tries."""
    return full if FULL else usual


def beginning(messages: Sequence[T]) -> list[T]:
    """As many messages of a session as this run plays."""
    return list(messages if FULL else messages[:MOST_MESSAGES])
