"""The share of a need that a view holds, and of a person's demands, summed over requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence, Set
from functools import lru_cache
from statistics import fmean
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.messages.demands import demands_in
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.evidence.reuse import Need, ReusedSpan
from eventctx.projections.evidence.texts import normalise, normalise_text
from eventctx.text import pattern

STARVED: Final = 0.5
"""A request that holds less than this share of what it needs is starved."""

_POINTER: Final = pattern(r"(?:#|\b[Mm]essage )([0-9]+)\b")


class HeldTexts(NamedTuple):
    """The contents of a view: the numbers of its whole messages, and all its other texts.

    ``others`` are shortened copies and insertions, as ``normalise`` reads them. They are the same
    from one compaction to the next, so ``joined`` them once: many long texts take longer to search
    than one.
    """

    whole: Collection[int]
    others: tuple[str, ...] = ()

    @classmethod
    def joined(cls, whole: Collection[int], others: Iterable[str]) -> HeldTexts:
        """Make it with one text of many. No span crosses a line, so none crosses a seam."""
        return cls(whole, ("\n".join(others),))

    def holds(self, text: str, carriers: Collection[int]) -> bool:
        """Whether the view has the text, which is in ``carriers`` and in no other message."""
        whole = self.whole
        if isinstance(whole, Set):
            if not whole.isdisjoint(carriers):
                return True
        elif any(number in whole for number in carriers):
            return True
        return any(text in other for other in self.others)

    def names(self, carriers: Collection[int]) -> bool:
        """Whether a shortened copy or an insertion points to a carrier: ``#41``, ``message 41``."""
        return any(not pointers(other).isdisjoint(carriers) for other in self.others)


@lru_cache(maxsize=64)
def pointers(text: str) -> frozenset[int]:
    """The numbers of messages that a text names, so that a recall tool could fetch them."""
    return frozenset([int(number) for number in _POINTER.findall(text) if len(number) < 10])


class Judged(msgspec.Struct, frozen=True, gc=False):
    """The need of one request for earlier messages, in weights, and how much its view held of it.

    ``names`` count numbers in. ``pointed`` is the weight of lost spans of which the view names a
    carrier. ``lost`` are all spans that the view does not hold. If ``needed`` is 0, the action
    reused nothing but what was fresh.
    """

    request: int
    needed: float
    held: float
    quotes_needed: float
    quotes_held: float
    names_needed: float
    names_held: float
    pointed: float
    lost: tuple[ReusedSpan, ...]


def judge(need: Need, shown: HeldTexts, *, least_age: int = 1) -> Judged:
    """Hold a need against the view of its request.

    Spans younger than ``least_age`` requests are left out; every policy shows the fresh ones.
    """
    needed = {"quote": 0.0, "name": 0.0, "number": 0.0}
    held = needed.copy()
    pointed = 0.0
    lost: list[ReusedSpan] = []
    for span in need.spans:
        if span.age < least_age:
            continue
        needed[span.kind] += span.weight
        if shown.holds(span.text, span.carriers):
            held[span.kind] += span.weight
            continue
        lost.append(span)
        if shown.names(span.carriers):
            pointed += span.weight
    names_needed, names_held = (each["name"] + each["number"] for each in (needed, held))
    return Judged(
        need.request,
        needed["quote"] + names_needed,
        held["quote"] + names_held,
        needed["quote"],
        held["quote"],
        names_needed,
        names_held,
        pointed,
        tuple(lost),
    )


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """Evidence recall, as shares from 0 to 1, over ``requests`` that reused something.

    Each figure is a mean over requests, so that a long action counts as much as a short one; those
    of quotes and names are over the requests that reused any. None: there was nothing to judge.
    Read names together with quotes: a bare list of names would score.
    """

    recall: float | None
    quotes: float | None
    names: float | None
    with_pointer: float | None
    starved: float | None
    requests: int


def evidence(judgements: Iterable[Judged]) -> Evidence:
    """Sum up requests, of one session or of several."""
    counted = [one for one in judgements if one.needed]
    shares = [one.held / one.needed for one in counted]
    return Evidence(
        _mean(shares),
        _mean([one.quotes_held / one.quotes_needed for one in counted if one.quotes_needed]),
        _mean([one.names_held / one.names_needed for one in counted if one.names_needed]),
        _mean([min(1.0, (one.held + one.pointed) / one.needed) for one in counted]),
        _mean([float(share < STARVED) for share in shares]),
        len(counted),
    )


def _mean(shares: list[float]) -> float | None:
    return fmean(shares) if shares else None


# -- a person's demands --------------------------------------------------------------------------


class CarriedDemand(msgspec.Struct, frozen=True, gc=False):
    """A demand that ``message`` brought first; ``carriers`` are all messages that contain it."""

    message: int
    text: str
    carriers: tuple[int, ...]


class DemandRecall(msgspec.Struct, frozen=True, gc=False):
    """Pairs of a demand and a later request, and in how many the request had it verbatim."""

    held: int
    pairs: int

    @property
    def recall(self) -> float | None:
        """The share of the pairs that were held; None if nothing was demanded."""
        return self.held / self.pairs if self.pairs else None

    def __add__(self, other: DemandRecall) -> DemandRecall:
        """The pairs of both, as of two sessions."""
        return DemandRecall(self.held + other.held, self.pairs + other.pairs)


def carried_demands(
    messages: Sequence[dict[str, Any]], persons: Collection[int] | None = None
) -> tuple[CarriedDemand, ...]:
    """The demands of a session's persons, each text once, with the messages that contain it.

    ``persons`` are the numbers of the messages that a person wrote, where a log knows them; without
    it the messages' own facts tell. Raises InvalidMessage as ``needs`` does.
    """
    first: dict[str, int] = {}
    for number, message in enumerate(messages):
        if read_facts(message).human if persons is None else number in persons:
            for sentence in demands_in(message):
                first.setdefault(normalise_text(sentence), number)
    texts = [normalise(message) for message in messages] if first else []
    return tuple(
        [
            CarriedDemand(at, demand, tuple([n for n, text in enumerate(texts) if demand in text]))
            for demand, at in first.items()
        ]
    )


def demand_recall(
    demands: Iterable[CarriedDemand], views: Iterable[tuple[int, HeldTexts]]
) -> DemandRecall:
    """Hold the demands against the views of requests, given as pairs ``(before, shown)``.

    A demand is asked of every request whose ``before`` is above its message's number.
    """
    asked = sorted(demands, key=lambda demand: demand.message)
    numbers = [demand.message for demand in asked]
    held = pairs = 0
    for before, shown in views:
        known = asked[: bisect_left(numbers, before)]
        pairs += len(known)
        held += sum([shown.holds(demand.text, demand.carriers) for demand in known])
    return DemandRecall(held, pairs)
