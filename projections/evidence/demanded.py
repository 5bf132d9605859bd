"""How many of a person's demands each later request still holds word for word."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from eventctx.messages.demands import demands_in
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.evidence.judging import HeldTexts
from eventctx.projections.evidence.texts import normalised, normalised_text


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
                first.setdefault(normalised_text(sentence), number)
    texts = [normalised(message) for message in messages] if first else []
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
        standing = asked[: bisect_left(numbers, before)]
        pairs += len(standing)
        held += sum([shown.holds(demand.text, demand.carriers) for demand in standing])
    return DemandRecall(held, pairs)
