"""The figures of a run: what its views held of what the model needed, cost, and lost by which rule.

Every figure is kept as sums, so that those of several sessions are pooled by adding. A share is a
mean over requests (of demands: over pairs of a demand and a later request), so a long session
counts for more than a short one, and so does every request of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import msgspec

from eventctx.comparison.defaults import PRICES, Prices
from eventctx.comparison.played import Compaction, Played, PlayedRequest
from eventctx.comparison.recording import Recording
from eventctx.projections.cache_cost import CacheCost, CacheOutcome, Growth, predict
from eventctx.projections.evidence import (
    CarriedDemand,
    Judged,
    Need,
    ReusedSpan,
    demand_recall,
    judge,
)
from eventctx.projections.evidence.judging import STARVED
from eventctx.projections.presence import describe_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Sums over the requests of one session, or of several.

    ``judged``, ``judged_quotes`` and ``judged_names`` are the requests that needed anything of that
    kind; ``evidence``, ``quotes``, ``names`` and ``pointed`` the sums of the shares that were held.
    ``pairs`` are of a demand and a later request, ``demands`` those where it was in view.
    ``tokens`` were sent; ``cached`` of them stood at the start of the request before, too.
    Compactions gave up ``given_up`` tokens of cache, and wrote ``rewritten`` of them again.
    ``followed`` of them were followed by another one, ``lasted`` requests later in sum, and
    ``expected`` as predicted.
    """

    judged: int = 0
    judged_quotes: int = 0
    judged_names: int = 0
    evidence: float = 0.0
    quotes: float = 0.0
    names: float = 0.0
    pointed: float = 0.0
    starved: int = 0
    pairs: int = 0
    demands: int = 0
    requests: int = 0
    tokens: int = 0
    cached: int = 0
    compactions: int = 0
    floors: int = 0
    fallbacks: int = 0
    given_up: int = 0
    rewritten: int = 0
    followed: int = 0
    lasted: int = 0
    expected: int = 0

    def __add__(self, other: RunFigures) -> RunFigures:
        """The figures of both, as of two sessions."""
        names = [field.name for field in fields(RunFigures)]
        return RunFigures(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def recall(self) -> float | None:
        """Evidence recall: the share of what was needed that the views held; None: nothing was."""
        return _share(self.evidence, self.judged)

    @property
    def recall_of_quotes(self) -> float | None:
        """Evidence recall of runs of words alone."""
        return _share(self.quotes, self.judged_quotes)

    @property
    def recall_of_names(self) -> float | None:
        """Evidence recall of names and numbers alone."""
        return _share(self.names, self.judged_names)

    @property
    def recall_with_pointers(self) -> float | None:
        """Evidence recall, if what a view points to by number counts as held."""
        return _share(self.pointed, self.judged)

    @property
    def starving(self) -> float | None:
        """The share of the judged requests that held less than half of what they needed."""
        return _share(self.starved, self.judged)

    @property
    def demand_recall(self) -> float | None:
        """The share of demands that stood word for word in each later request."""
        return _share(self.demands, self.pairs)

    @property
    def prefix_reuse(self) -> float | None:
        """The share of the tokens that the provider's cache had from the request before."""
        return _share(self.cached, self.tokens)

    @property
    def compactions_per_50(self) -> float | None:
        """Compactions per 50 requests."""
        return _share(50 * self.compactions, self.requests)

    @property
    def requests_expected(self) -> float | None:
        """Requests until the next compaction as predicted; of compactions that had a next one."""
        return _share(self.expected, self.followed)

    @property
    def requests_lasted(self) -> float | None:
        """Requests until the next compaction as they were."""
        return _share(self.lasted, self.followed)

    def rewriting(self, prices: Prices = PRICES) -> float:
        """The part of the cost that is for writing again what the cache had."""
        return self.rewritten * (prices.written - prices.cached)

    def cost(self, prices: Prices = PRICES) -> float:
        """The price of all prompts."""
        return prices.of(self.tokens, self.cached)


def figures(
    played: Played, needs: Iterable[Need], demands: Sequence[CarriedDemand] = ()
) -> RunFigures:
    """The figures of a run over the session that ``needs`` and ``demands`` were read from."""
    requests = played.requests
    judgements = [one for one in judgements_of(played, needs) if one.needed]
    shares = [one.held / one.needed for one in judgements]
    quotes = [one.quotes_held / one.quotes_needed for one in judgements if one.quotes_needed]
    names = [one.names_held / one.names_needed for one in judgements if one.names_needed]
    costs = compaction_costs(played)
    followed = [one for one in costs if one.expected and one.reported and one.reported.over]
    recalled = demand_recall(demands, [(one.before, one.shown) for one in requests])
    return RunFigures(
        judged=len(judgements),
        judged_quotes=len(quotes),
        judged_names=len(names),
        evidence=sum(shares),
        quotes=sum(quotes),
        names=sum(names),
        pointed=sum([min(1.0, (one.held + one.pointed) / one.needed) for one in judgements]),
        starved=sum([share < STARVED for share in shares]),
        pairs=recalled.pairs,
        demands=recalled.held,
        requests=len(requests),
        tokens=sum([one.tokens for one in requests]),
        cached=sum([one.prefix for one in requests]),
        compactions=len(played.compactions),
        floors=sum([one.floor for one in requests]),
        fallbacks=sum([one.fallback is not None for one in played.compactions]),
        given_up=sum([one.given_up for one in costs]),
        rewritten=sum([one.rewritten for one in costs]),
        followed=len(followed),
        lasted=sum([one.reported.requests for one in followed if one.reported]),
        expected=sum([one.expected or 0 for one in followed]),
    )


def compaction_costs(played: Played) -> list[CacheCost]:
    """The costs of a run's compactions in the provider's cache, of those after a first request.

    The cache serves what a request begins with in common with the one before.
    """
    requests = played.requests
    places = [bisect_left(requests, one.before, key=_before) for one in played.compactions]
    growth = Growth([one.tokens for one in requests])
    found: list[CacheCost] = []
    spans = zip([0, *places], places, [*places[1:], len(requests)], strict=False)
    for one, (since, place, end) in zip(played.compactions, spans, strict=True):
        if not 0 < place < len(requests):
            continue
        first = requests[place]
        made = predict(
            held=requests[place - 1].tokens,
            kept=first.prefix,
            saved=one.tokens_before - one.tokens_after,
            room=one.threshold - one.tokens_after,
            growth=growth.mean(since, place),
        )
        over = end < len(requests)
        read, written = first.prefix, first.tokens - first.prefix
        told = CacheOutcome(end - place, over, read, written, 0, 0)
        found.append(msgspec.structs.replace(made, reported=told))
    return found


def _before(request: PlayedRequest) -> int:
    return request.before


def judgements_of(played: Played, needs: Iterable[Need]) -> list[Judged]:
    """The needs of each request, compared with its view."""
    shown = {request.before: request.shown for request in played.requests}
    return [judge(need, shown[need.before]) for need in needs if need.before in shown]


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


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
    """One lost message; ``spans`` are the losses, the first request's first."""

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
    for need in judgements_of(played, recording.needs):
        before = before_of[need.request]
        for span in need.lost:
            message = span.carriers[-1]
            if message not in found:
                rule = _rule(message, played.compactions[: compactions[before]])
                found[message] = _Missed(ordinal[before], before, rule)
            found[message].add(ordinal[before], span, span.weight / need.needed)
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
    """The share of each rule in the loss, the largest first."""
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
