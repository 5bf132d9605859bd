"""What a run lost of what was needed: which message, at which request, and by which rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from eventctx.comparison.figures import judgements_of
from eventctx.comparison.recording import Recording
from eventctx.comparison.simulator import Compaction, Played
from eventctx.projections.evidence import ReusedSpan
from eventctx.projections.presence import describe_reason

_LEFT = ("summarised", "dropped", "merged")


class NeededAgain(msgspec.Struct, frozen=True, kw_only=True):
    """A message that requests needed, and whose text was no longer in view.

    ``request`` is the first of ``requests`` that missed it, counted from 1 in its session, with
    ``behind`` as the number of the last message before it. ``weight`` is what they missed of what
    they needed, in requests. ``text`` is the heaviest of the lost spans. ``disposition`` and
    ``reason`` are those of the compaction that took it, ``why`` the reason in words.
    """

    policy: str
    budget: int | None
    session: str
    message: int
    request: int
    behind: int
    requests: int
    weight: float
    disposition: str
    reason: str
    why: str
    kind: str
    text: str


class LostByRule(msgspec.Struct, frozen=True):
    """The part of all that was lost that one rule took, as a share from 0 to 1."""

    disposition: str
    reason: str
    share: float


class _Missed:
    """What is known of one lost message; ``spans`` are the losses, the first request's first."""

    def __init__(self, request: int, before: int, rule: tuple[str, str]) -> None:
        self.request = request
        self.before = before
        self.rule = rule
        self.requests: set[int] = set()
        self.weight = 0.0
        self.heaviest: ReusedSpan | None = None

    def add(self, request: int, span: ReusedSpan, weight: float) -> None:
        self.requests.add(request)
        self.weight += weight
        if self.heaviest is None or span.weight * len(span.text) > (
            self.heaviest.weight * len(self.heaviest.text)
        ):
            self.heaviest = span


def needed_again(
    label: str, budget: int | None, recording: Recording, played: Played
) -> list[NeededAgain]:
    """The messages of one session that were needed and not in view, the worst loss first."""
    compactions = {one.before: one.compactions for one in played.requests}
    ordinal = {one.before: place + 1 for place, one in enumerate(played.requests)}
    before_of = {need.request: need.before for need in recording.needs}
    found: dict[int, _Missed] = {}
    for judged in judgements_of(played, recording.needs):
        before = before_of[judged.request]
        for span in judged.lost:
            message = span.carriers[-1]
            if message not in found:
                rule = _rule(message, played.compactions[: compactions[before]])
                found[message] = _Missed(ordinal[before], before, rule)
            found[message].add(ordinal[before], span, span.weight / judged.needed)
    made = [
        NeededAgain(
            policy=label,
            budget=budget,
            session=recording.name,
            message=recording.number_of(message),
            request=missed.request,
            behind=recording.number_of(missed.before - 1),
            requests=len(missed.requests),
            weight=missed.weight,
            disposition=missed.rule[0],
            reason=missed.rule[1],
            why=describe_reason(missed.rule[1], recording.facts[message]),
            kind="" if missed.heaviest is None else missed.heaviest.kind,
            text="" if missed.heaviest is None else missed.heaviest.text,
        )
        for message, missed in found.items()
    ]
    return worst(made)


def worst(losses: Iterable[NeededAgain]) -> list[NeededAgain]:
    """The losses, the heaviest first."""
    return sorted(losses, key=lambda one: (-one.weight, one.session, one.message))


def by_rule(losses: Sequence[NeededAgain]) -> tuple[LostByRule, ...]:
    """How much of the loss each rule took, the most first."""
    total = sum([one.weight for one in losses])
    weights: dict[tuple[str, str], float] = {}
    for one in losses:
        rule = one.disposition, one.reason
        weights[rule] = weights.get(rule, 0.0) + one.weight
    ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    return tuple([LostByRule(*rule, weight / total) for rule, weight in ranked if total])


def _rule(message: int, compactions: Sequence[Compaction]) -> tuple[str, str]:
    """Disposition and reason of the compaction that took a message, or cut it first."""
    found = ("", "")
    for compaction in reversed(compactions):
        rule = compaction.dispositions.get(message)
        if rule is None:
            continue
        if rule[0] in _LEFT:
            return rule
        if rule[0] != "shortened":
            break
        found = rule
    return found
