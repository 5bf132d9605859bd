"""What a person asked for in a session, in view or not: the first task, and messages with demands.

A compaction may take these messages out of view, so their places are kept beside it: an index or a
summary quotes the demands from the log, and a count of the absent ones needs no text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from eventctx.projections.view.refs import DemandRef, MessageRef


class Spoken(NamedTuple):
    """``task`` is the number of the first human message, ``demands`` are in rising order."""

    task: int | None = None
    demands: tuple[DemandRef, ...] = ()


NOTHING = Spoken()


def added(spoken: Spoken, ref: MessageRef) -> Spoken:
    """What was asked for after one more message."""
    facts = ref.facts
    if not facts.human:
        return spoken
    task = ref.number if spoken.task is None else spoken.task
    if not facts.demands:
        return spoken if task == spoken.task else Spoken(task, spoken.demands)
    demand = DemandRef(ref.number, ref.position, ref.index, facts.demands)
    return Spoken(task, (*spoken.demands, demand))


def only_of(
    spoken: Spoken, order: Iterable[tuple[int, int]], fresh: Iterable[MessageRef]
) -> Spoken:
    """What was asked for in a transcript that was set: runs of numbers, ``fresh`` among them."""
    runs = list(order)
    task = spoken.task if spoken.task is not None and _holds(runs, spoken.task) else None
    left = Spoken(task, tuple([one for one in spoken.demands if _holds(runs, one.number)]))
    for ref in fresh:
        left = added(left, ref)
    return left


def without(spoken: Spoken, numbers: Collection[int]) -> Spoken:
    """What was asked for without the demands of these messages, whose texts were erased."""
    return spoken._replace(demands=tuple([d for d in spoken.demands if d.number not in numbers]))


def _holds(runs: Iterable[tuple[int, int]], number: int) -> bool:
    return any(first <= number <= last for first, last in runs)
