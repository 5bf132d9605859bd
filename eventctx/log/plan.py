"""The compaction plan: the part of the transcript that a request view shows, as pure data.

A plan names messages by number, and gives every message that was in view a disposition. Messages
that an earlier plan took out stay out; messages added later are kept until the next plan. A plan is
recorded in ``context:post_compact``; with the log, it is all that is needed to derive the view
again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, Literal

import msgspec

Disposition = Literal["kept", "shortened", "summarised", "dropped", "merged"]
"""How a view treats a message. ``merged``: another message with the same content replaces it."""

InsertionKind = Literal["system_prompt", "memory", "notice", "summary"]

TAKEN_BACK: Final = "taken_back"
"""The reason code of messages that a person or a program undid, and the strategy of the plan that
drops them: such a plan of an imported file is no compaction."""

INFERRED: Final = "inferred"
"""The reason code of messages that an imported file counts, and does not name."""

PROVIDER: Final = "provider"
"""The reason code of messages that the provider summarised by itself: the last message that the
plan covers (``through``) holds its summary. Also the strategy of such a plan."""


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Messages ``first`` to ``last`` (numbers, inclusive) share a disposition and a reason code."""

    first: int
    last: int
    disposition: Disposition
    reason: str


class Shortening(msgspec.Struct, frozen=True, array_like=True):
    """Message ``number`` is shown as body ``body`` of the record at position ``at``.

    ``at`` is None for the record that carries the plan, and the position of an earlier record if
    the plan keeps a text that an earlier compaction shortened.
    """

    number: int
    body: int
    at: int | None = None


class Insertion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message in the view that is not in the transcript.

    ``body`` and ``at`` locate its body, as in ``Shortening``; it holds a whole message in the
    session's dialect. The insertion comes before message ``before``; ``None`` is the start of the
    conversation, after the leading system messages; the number of the next message, which does not
    exist yet, is the end. ``stands_for`` are the runs of numbers ``[first, last]`` that a summary
    replaces, and ``depth`` counts how often its content was summarised. ``demands`` are runs of
    numbers of a person's messages whose demands the insertion quotes word by word.
    """

    kind: InsertionKind
    body: int
    at: int | None = None
    before: int | None = None
    stands_for: tuple[tuple[int, int], ...] = ()
    depth: int = 0
    demands: tuple[tuple[int, int], ...] = ()


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Dispositions of the messages in view, up to number ``through``, and the insertions.

    ``unbound`` are runs of message numbers whose signed thinking blocks the view leaves out from
    here on: a provider binds them to the messages before them, and this plan changed those; or the
    provider cleared them.
    """

    through: int
    runs: tuple[Run, ...] = ()
    shortened: tuple[Shortening, ...] = ()
    insertions: tuple[Insertion, ...] = ()
    unbound: tuple[tuple[int, int], ...] = ()


def runs_of(dispositions: Iterable[tuple[int, Disposition, str]]) -> tuple[Run, ...]:
    """Join ``(number, disposition, reason)`` in rising order of number into the fewest runs.

    A gap in the numbers (messages out of view) ends a run, so that a run counts no other messages.
    """
    runs: list[Run] = []
    first = last = -1
    how, why = None, ""
    for number, disposition, reason in dispositions:
        if number != last + 1 or disposition != how or reason != why:
            if how is not None:
                runs.append(Run(first, last, how, why))
            first, how, why = number, disposition, reason
        last = number
    if how is not None:
        runs.append(Run(first, last, how, why))
    return tuple(runs)


def runs_by_number(decided: Mapping[int, tuple[Disposition, str]]) -> tuple[Run, ...]:
    """``runs_of`` a disposition and a reason by number, in any order of the numbers."""
    runs: list[Run] = []
    first = last = -1
    present: tuple[Disposition, str] | None = None
    for number in sorted(decided):
        one = decided[number]
        # Most messages share one tuple with their neighbour: no text is compared.
        if number != last + 1 or (one is not present and one != present):
            if present is not None:
                runs.append(Run(first, last, *present))
            first, present = number, one
        last = number
    if present is not None:
        runs.append(Run(first, last, *present))
    return tuple(runs)


def expand(runs: tuple[Run, ...]) -> Iterator[tuple[int, Disposition, str]]:
    """Yield ``(number, disposition, reason)`` for every number that the runs cover."""
    for run in runs:
        for number in range(run.first, run.last + 1):
            yield number, run.disposition, run.reason


def without(runs: Iterable[Run], numbers: Sequence[int]) -> list[Run]:
    """``runs`` without these numbers, which must be in rising order."""
    left: list[Run] = []
    for run in runs:
        first = run.first
        for number in numbers[bisect_left(numbers, first) : bisect_right(numbers, run.last)]:
            if first < number:
                left.append(Run(first, number - 1, run.disposition, run.reason))
            first = number + 1
        if first <= run.last:
            left.append(run if first == run.first else msgspec.structs.replace(run, first=first))
    return left


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs in rising order, neighbours with the same disposition and reason joined."""
    result: list[Run] = []
    for run in sorted(runs, key=lambda run: run.first):
        last = result[-1] if result else None
        if (
            last is not None
            and last.last + 1 == run.first
            and (last.disposition, last.reason) == (run.disposition, run.reason)
        ):
            result[-1] = Run(last.first, run.last, run.disposition, run.reason)
        else:
            result.append(run)
    return tuple(result)


def numbers_in(runs: Iterable[tuple[int, int]]) -> set[int]:
    """All numbers of runs ``(first, last)``."""
    return {number for first, last in runs for number in range(first, last + 1)}


def finder(runs: Sequence[Run]) -> Callable[[int], Run | None]:
    """A function that finds the run of a number as ``find`` does, faster for many numbers."""
    ends = [run.last for run in runs]

    def covering(number: int) -> Run | None:
        place = bisect_left(ends, number)
        return runs[place] if place < len(runs) and runs[place].first <= number else None

    return covering


def find(runs: Sequence[Run], number: int) -> Run | None:
    """Return the run that covers ``number``, by bisection; None when no run does."""
    place = bisect_left(runs, number, key=attrgetter("last"))
    return runs[place] if place < len(runs) and runs[place].first <= number else None
