"""What a person asked for in a session, in view or not: the first task, and messages with demands.

A compaction may take these messages out of view, so their places are kept beside it: an index or a
summary quotes the demands from the log, and a count of the absent ones needs no text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from eventctx.projections.view.layout import Layout
from eventctx.projections.view.refs import DemandRef, MessageRef


class Spoken(NamedTuple):
    """``task`` is the number of the first human message, ``demands`` are in rising order.

    ``withdrawn`` are all demands that were taken back: numbers of messages, and which of their
    demands (from 1). A message of which none is left is no longer among ``demands``.
    """

    task: int | None = None
    demands: tuple[DemandRef, ...] = ()
    withdrawn: tuple[tuple[int, int], ...] = ()


NOTHING = Spoken()


def added(spoken: Spoken, ref: MessageRef) -> Spoken:
    """What was asked for after one more message."""
    facts = ref.facts
    if not facts.human:
        return spoken
    task = ref.number if spoken.task is None else spoken.task
    demands = spoken.demands
    if facts.demands:
        demands = (*demands, DemandRef(ref.number, ref.position, ref.index, facts.demands))
    return Spoken(task, demands, spoken.withdrawn)


def only_of(
    spoken: Spoken, order: Iterable[tuple[int, int]], fresh: Iterable[MessageRef]
) -> Spoken:
    """What was asked for in a transcript that was set: runs of numbers, ``fresh`` among them."""
    runs = list(order)
    task = spoken.task if spoken.task is not None and _holds(runs, spoken.task) else None
    demands = tuple([one for one in spoken.demands if _holds(runs, one.number)])
    left = Spoken(task, demands, spoken.withdrawn)
    for ref in fresh:
        left = added(left, ref)
    return left


def without(spoken: Spoken, numbers: Collection[int]) -> Spoken:
    """What was asked for without the demands of these messages, whose texts were erased."""
    return spoken._replace(demands=tuple([d for d in spoken.demands if d.number not in numbers]))


def taken_back(spoken: Spoken, number: int, demand: int) -> Spoken:
    """What was asked for without demand ``demand`` (from 1) of a message."""
    if (number, demand) in spoken.withdrawn:
        return spoken
    demands = [one if one.number != number else _without_one(one, demand) for one in spoken.demands]
    return spoken._replace(
        demands=tuple([one for one in demands if one.demands]),
        withdrawn=(*spoken.withdrawn, (number, demand)),
    )


def absent(spoken: Spoken, layout: Layout) -> int:
    """How many demands that hold stand nowhere in a view, word by word, as far as facts tell.

    A shortened message holds as many as its copy's facts count. A message out of view holds those
    of an insertion that says so (``InsertionRef.demands``). No text is read, so a demand that
    another message repeats, or that an older summary quotes, counts as absent.
    """
    quoted = [run for one in layout.insertions for run in one.demands]
    wanted = {one.number: one.demands for one in spoken.demands if not _holds(quoted, one.number)}
    missing = sum(wanted.values())
    if not missing:
        return 0
    for ref in layout.refs:
        demands = wanted.get(ref.number)
        if demands is not None:
            missing -= min(demands, ref.facts.demands) if ref.shortened else demands
    return missing


def _without_one(ref: DemandRef, demand: int) -> DemandRef:
    withdrawn = tuple(sorted([*ref.withdrawn, demand]))
    return msgspec.structs.replace(ref, demands=ref.demands - 1, withdrawn=withdrawn)


def _holds(runs: Iterable[tuple[int, int]], number: int) -> bool:
    return any(first <= number <= last for first, last in runs)
