"""The compaction plan: what a request view takes from the transcript, as pure data.

A plan speaks of messages by number. It covers every number up to ``through``; messages added
later are kept until the next plan. It is recorded in ``context:post_compact`` and is all that is
needed, with the log, to derive the view again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Disposition = Literal["kept", "shortened", "summarised", "dropped", "merged"]
"""What a view does with a message. ``merged``: another one with the same content stands for it."""

InsertionKind = Literal["system_prompt", "memory", "notice", "summary"]

REASONS: dict[str, str] = {
    "system": "system and developer messages always stay",
    "pinned": "pinned",
    "latest_human": "the latest human message always stays",
    "recent": "among the most recent messages that the policy keeps",
    "same_round": "belongs to a tool round of which another message stays",
    "open_round": "belongs to the tool round in progress",
    "older": "older than the most recent messages that the policy keeps",
    "duplicate": "same role and first 100 characters as a later message",
    "oversize": "larger than its share of the budget",
    "budget": "to fit the budget",
    "summary": "a summary stands for it",
    "restored": "brought back on request",
    "imported": "so recorded in the imported transcript",
}
"""Every reason code that a plan of this release may hold, and what it says to a reader."""


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Messages ``first`` to ``last`` (numbers, inclusive) share a disposition and a reason code."""

    first: int
    last: int
    disposition: Disposition
    reason: str


class Shortening(msgspec.Struct, frozen=True, array_like=True):
    """Message ``number`` is shown as body ``body`` of the record at position ``at``.

    ``at`` is None for the record that carries the plan, and the position of an earlier one where
    a later compaction keeps what it had shortened.
    """

    number: int
    body: int
    at: int | None = None


class Insertion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message in the view that is in no transcript.

    ``body`` and ``at`` say where its body lies, as in ``Shortening``; it holds a whole message in
    the session's dialect. It stands before message ``before``; ``None`` is the start of the
    conversation, behind the leading system messages. ``stands_for`` are the runs of numbers
    ``[first, last]`` that a summary replaces.
    """

    kind: InsertionKind
    body: int
    at: int | None = None
    before: int | None = None
    stands_for: tuple[tuple[int, int], ...] = ()


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Dispositions of every message with a number up to ``through``, and what is inserted."""

    through: int
    runs: tuple[Run, ...] = ()
    shortened: tuple[Shortening, ...] = ()
    insertions: tuple[Insertion, ...] = ()


def runs_of(dispositions: Iterable[tuple[int, Disposition, str]]) -> tuple[Run, ...]:
    """Join ``(number, disposition, reason)`` in rising order of number into the fewest runs.

    A gap in the numbers (a message that a ``set`` took out) does not end a run: a plan is only
    ever read for numbers that are in the transcript.
    """
    runs: list[Run] = []
    first = last = -1
    current: tuple[Disposition, str] | None = None
    for number, disposition, reason in dispositions:
        if (disposition, reason) != current:
            if current is not None:
                runs.append(Run(first, last, *current))
            first, current = number, (disposition, reason)
        last = number
    if current is not None:
        runs.append(Run(first, last, *current))
    return tuple(runs)


def expand(runs: tuple[Run, ...]) -> Iterator[tuple[int, Disposition, str]]:
    """Yield ``(number, disposition, reason)`` for every number that the runs cover."""
    for run in runs:
        for number in range(run.first, run.last + 1):
            yield number, run.disposition, run.reason


def find(runs: tuple[Run, ...], number: int) -> Run | None:
    """Return the run that covers ``number``, by bisection; None when no run does."""
    low, high = 0, len(runs)
    while low < high:
        middle = (low + high) // 2
        if runs[middle].last < number:
            low = middle + 1
        else:
            high = middle
    if low < len(runs) and runs[low].first <= number:
        return runs[low]
    return None
