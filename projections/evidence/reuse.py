"""What every request of a recorded session needed: the spans that its action reused.

A maximal run of the model's messages is an action; the request is what precedes it. A span of an
action is text that the model wrote and that an earlier message holds. It says that the model used
that message, unless the text is everywhere, or is the model's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log2
from typing import Any

import msgspec

from eventctx.messages.facts import Kind
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.evidence.candidates import Beginnings, SpanKind, candidates
from eventctx.projections.evidence.carriers import Carriers
from eventctx.projections.evidence.settings import DEFAULT, EvidenceSettings
from eventctx.projections.evidence.texts import normalised


class ReusedSpan(msgspec.Struct, frozen=True, gc=False):
    """A text that an action shares with earlier messages.

    ``carriers`` are the numbers of all earlier messages that hold it, rising, system messages apart
    (what stands in one of those is no span). ``age`` is the number of requests that have shown the
    latest carrier before this one: 0 is fresh. ``weight`` is log2(1 + earlier messages / carriers).
    """

    text: str
    kind: SpanKind
    weight: float
    age: int
    carriers: tuple[int, ...]


class Need(msgspec.Struct, frozen=True):
    """What one request needed: the messages below ``before`` precede its action.

    ``request`` counts the session's requests from 0. ``spans`` are of every age, fresh ones too.
    """

    request: int
    before: int
    spans: tuple[ReusedSpan, ...]


def needs(
    messages: Sequence[dict[str, Any]], settings: EvidenceSettings = DEFAULT
) -> tuple[Need, ...]:
    """The need of every request of a session, in their order; also of those that reuse nothing.

    ``messages`` are a transcript in any dialect; their places in it are their numbers. A session is
    of use up to its first recorded compaction: behind it wrote a model that had forgotten already.
    Raises InvalidMessage for a message with neither a role nor an item's type.
    """
    kinds = [read_facts(message).kind for message in messages]
    texts = [normalised(message) for message in messages]
    actions = list(_actions(kinds))
    starts = [start for start, _ in actions]
    written = ["\n".join(texts[start:end]) for start, end in actions]
    beginnings, carriers = Beginnings(written, settings), Carriers(texts)
    found: list[Need] = []
    added = 0
    for request, before in enumerate(starts):
        for number in range(added, before):
            beginnings.add(number, texts[number])
        added = before
        spans: list[ReusedSpan] = []
        for text, kind in candidates(written[request], texts, beginnings, settings).items():
            everywhere = carriers.of(text)
            earlier = everywhere[: bisect_left(everywhere, before)]
            if _is_evidence(earlier, kinds, before, settings):
                age = request - bisect_right(starts, earlier[-1])
                weight = log2(1 + before / len(earlier))
                spans.append(ReusedSpan(text, kind, weight, age, earlier))
        found.append(Need(request, before, tuple(spans)))
    return tuple(found)


def _actions(kinds: Sequence[Kind]) -> Iterator[tuple[int, int]]:
    """Starts and ends of the runs of the model's messages that something precedes."""
    at = 0
    for is_models, run in groupby(kinds, lambda kind: kind == "assistant"):
        start, at = at, at + len(list(run))
        if is_models and start:
            yield start, at


def _is_evidence(
    carriers: Sequence[int], kinds: Sequence[Kind], before: int, settings: EvidenceSettings
) -> bool:
    """Whether a text in these of the ``before`` earlier messages was taken from one of them."""
    if not carriers or len(carriers) > max(settings.few_carriers, settings.rarity * before):
        return False
    # What the model said first is its own; what stands in a system message is always in view.
    return kinds[carriers[0]] != "assistant" and all(kinds[one] != "system" for one in carriers)
