"""What a policy is measured against: no choice at all, chance, age alone, and knowing the future.

All three drop whole rounds until the view is down to the target; what must stay stays. They are no
policies to use: ``hindsight`` reads what the model will reuse, so it cannot run live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush

from eventctx.messages.tool_rounds import Group
from eventctx.policies.policy import Budget, Policy, PolicyState, Proposal, Visible
from eventctx.policies.working_set import WorkingSet, keep_whole
from eventctx.projections.evidence import Need

Order = Callable[[Visible, Sequence[Group], WorkingSet], Iterable[Group]]
"""Rounds that may go, in the order in which they go."""


class Dropping:
    """Drops whole rounds in a given order until the view is down to the target."""

    version = 1
    max_messages: int | None = None

    def __init__(self, name: str, order: Order) -> None:
        self.name = name
        self._order = order

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """The proposal; its insertions are those of the view."""
        whole = keep_whole(visible)
        working_set = WorkingSet(visible, whole)
        fixed = visible.protected | visible.open_round
        free = [one for one in working_set.groups if fixed.isdisjoint(one.rows)]
        for group in self._order(visible, free, working_set):
            if working_set.total <= budget.target:
                break
            working_set.drop(group, "old_round")
        return Proposal(
            working_set.decided, working_set.limits, kept_insertions=whole.kept_insertions
        )


def recency() -> Policy:
    """The oldest rounds go first."""
    return Dropping("recency", lambda visible, free, _: free)


def chance(seed: int = 0) -> Policy:
    """Any rounds go; which ones depends on ``seed`` and their numbers alone."""

    def order(visible: Visible, free: Sequence[Group], _: WorkingSet) -> Iterable[Group]:
        return sorted(free, key=lambda group: _drawn(seed, visible.messages[group.rows[0]].number))

    return Dropping("random", order)


def _drawn(seed: int, number: int) -> bytes:
    return sha256(f"{seed} {number}".encode()).digest()


def hindsight(needs: Sequence[Need]) -> Policy:
    """Those rounds stay that hold most of what will be reused, for their size.

    What a request needs counts once, in the round that holds it, and every request counts the same.
    So this is what whole rounds could hold, had the future been known; not an exact bound, as
    choosing rounds well is a knapsack problem.
    """
    spans = [
        (need.before, span.weight / total, frozenset(span.carriers))
        for need in needs
        if (total := sum([one.weight for one in need.spans if one.age >= 1]))
        for span in need.spans
        if span.age >= 1
    ]

    def order(visible: Visible, free: Sequence[Group], working_set: WorkingSet) -> Iterable[Group]:
        messages = visible.messages
        group_of = {messages[row].number: place for place, g in enumerate(free) for row in g.rows}
        held = {
            ref.number
            for row, ref in enumerate(messages)
            if ref.number not in group_of and not ref.shortened
        }
        now = messages[-1].number + 1 if messages else 0
        wanted: dict[int, dict[int, float]] = {}
        for place, (before, weight, carriers) in enumerate(spans):
            if before >= now and held.isdisjoint(carriers):
                for at in {group_of[one] for one in carriers if one in group_of}:
                    wanted.setdefault(at, {})[place] = weight
        costs = [max(1, working_set.cost(group)) for group in free]
        ranked = _ranked(wanted, costs)
        return [free[at] for at in reversed(ranked)]

    return Dropping("hindsight", order)


def _ranked(wanted: Mapping[int, Mapping[int, float]], costs: Sequence[int]) -> list[int]:
    """Places of rounds, the most worth first: weight not held yet, per token; the newest of equals.

    A round's worth only sinks as others are taken, so the old worth is a bound, and few are counted
    again.
    """
    heap = [(-sum(wanted.get(at, {}).values()) / cost, -at) for at, cost in enumerate(costs)]
    heapify(heap)
    covered: set[int] = set()
    ranked: list[int] = []
    while heap:
        worth, at = heappop(heap)
        left = [weight for place, weight in wanted.get(-at, {}).items() if place not in covered]
        present = -sum(left) / costs[-at]
        if present > worth:
            heappush(heap, (present, at))
            continue
        ranked.append(-at)
        covered.update(wanted.get(-at, ()))
    return ranked
