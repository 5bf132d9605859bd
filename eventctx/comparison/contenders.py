"""The policies of a comparison with their settings, by name or as objects, and the baselines.

A policy is measured against no choice at all, chance, age alone, and knowing the future. These drop
whole rounds until the view is down to the target; what must stay stays. They are no policies to
use: ``hindsight`` reads what the model will reuse, so it cannot run live.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.comparison.simulator import TARGET, THRESHOLD
from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.messages.encoding import decode_json
from eventctx.messages.shorten import Limit
from eventctx.messages.tool_rounds import Group
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.named import (
    ALIASES,
    DEFAULT,
    POLICIES,
    as_policy,
    policy_named,
    settings_of_policy,
)
from eventctx.policies.policy import (
    Budget,
    Policy,
    PolicyFunction,
    PolicyState,
    Proposal,
    Visible,
    is_policy,
)
from eventctx.policies.trigger import make_budget
from eventctx.policies.working_set import WorkingSet, keep_whole
from eventctx.projections.evidence import Need
from eventctx.session.settings import by_own_name, check_advised

UNMASKED: Final = 10
"""Results that masking leaves as they are, the newest."""

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


class Masking:
    """Empties the oldest results until the view is down to the target, then drops rounds.

    The ten newest results stay as long as there are others: observation masking.
    """

    name = "masking"
    version = 1
    max_messages: int | None = None

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """The proposal; its insertions are those of the view."""
        whole = keep_whole(visible)
        working_set = WorkingSet(visible, whole)
        results = [row for row, ref in enumerate(visible.messages) if ref.facts.results]
        for row in results[:-UNMASKED]:
            if working_set.total <= budget.target:
                break
            working_set.shorten(row, Limit(outcome=0), "old_result")
        fixed = visible.protected | visible.open_round
        for group in [one for one in working_set.groups if fixed.isdisjoint(one.rows)]:
            if working_set.total <= budget.target:
                break
            working_set.drop(group, "old_round")
        return Proposal(
            working_set.decided, working_set.limits, kept_insertions=whole.kept_insertions
        )


def chance(seed: int = 0) -> Policy:
    """Any rounds go; which ones depends on ``seed`` and their numbers alone."""

    def order(visible: Visible, free: Sequence[Group], _: WorkingSet) -> Iterable[Group]:
        return sorted(free, key=lambda group: _draw(seed, visible.messages[group.rows[0]].number))

    return Dropping("random", order)


def _draw(seed: int, number: int) -> bytes:
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
        ranked = _rank(wanted, costs)
        return [free[at] for at in reversed(ranked)]

    return Dropping("hindsight", order)


def _rank(wanted: Mapping[int, Mapping[int, float]], costs: Sequence[int]) -> list[int]:
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


WHOLE: Final = "whole"
"""The row without any compaction."""

HINDSIGHT: Final = "hindsight"
ON_REQUEST: Final = ("recency", "random", "masking")

SESSION_SETTINGS: Final = ("target_usage", "compact_threshold")
"""Settings of a session that are given with a policy's own."""

_SETTING: Final = re.compile(r":(?=[a-z_]+=)")
_BUDGET: Final = re.compile(r"([0-9][0-9_]*|[0-9]+\.[0-9]+)([kKmM]?)")
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


class Contender(NamedTuple):
    """A policy to run, under a ``label``; ``make`` gives it what each session needed."""

    label: str
    make: Callable[[Sequence[Need]], Policy | None]
    target: float = TARGET
    threshold: float = THRESHOLD


def contenders(
    policies: Sequence[str | Policy | PolicyFunction] | None,
    summarizer: Summarizer | None = None,
    scorer: Scorer | None = None,
) -> list[Contender]:
    """The policies to compare; without any, all that need no function of the user's.

    A policy is an object, or a text: its name, and settings of it or of the session after colons
    (``ladder:target_usage=0.3``). Raises InvalidSetting for one that is unknown or is there twice,
    and for one that needs a function which is not given.
    """
    if policies is None:
        policies = policies_alone()
    if isinstance(policies, str):
        raise InvalidSetting(f"policies: expected a list of policies, found {shown(policies)}")
    if not policies:
        raise InvalidSetting("policies: expected at least one, found none")
    found = [_contender(one, summarizer, scorer) for one in policies]
    labels = [one.label for one in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise InvalidSetting(f"policies: expected each once, found {', '.join(twice)} twice")
    chosen = [one for one in found if one.label not in (WHOLE, HINDSIGHT)]
    if not chosen:
        raise InvalidSetting("policies: expected at least one besides whole and hindsight")
    return chosen


def without_compaction() -> Contender:
    """The contender that never compacts."""
    return Contender(WHOLE, lambda _: None)


def with_hindsight() -> Contender:
    """The contender that knows what will be reused."""
    return Contender(HINDSIGHT, hindsight)


def budgets_of(given: Sequence[int | str]) -> list[int]:
    """Budgets in tokens, the largest first; ``100k`` and ``1M`` may be written so."""
    if isinstance(given, str):
        raise InvalidSetting(f"budgets: expected a list of budgets, found {shown(given)}")
    found = sorted({_budget(one) for one in given}, reverse=True)
    if not found:
        raise InvalidSetting("budgets: expected at least one, found none")
    return found


def _budget(given: int | str) -> int:
    if isinstance(given, str):
        match = _BUDGET.fullmatch(given.strip())
        if match is not None:
            number = match[1].replace("_", "")
            given = int(float(number) * _UNITS[match[2].lower()])
    if type(given) is not int or given < 1:
        raise InvalidSetting(f"budget: expected tokens, such as 50000 or 50k, found {shown(given)}")
    return given


def name_and_settings(label: str) -> tuple[str, list[str]]:
    """A policy's name and its settings (``KEY=VALUE``), read from a text."""
    name, *settings = _SETTING.split(label.strip())
    return name, settings


def policies_alone() -> list[str]:
    """The names of the policies that need no function of the user's, the default first."""
    others = [name for name in POLICIES if name != DEFAULT]
    return [DEFAULT, *[name for name in others if _runs_alone(name)]]


def _runs_alone(name: str) -> bool:
    try:
        policy = policy_named(name)
    except InvalidSetting:
        return False  # a policy that is nothing without a setting, as `custom`
    return not any(getattr(policy, f"needs_{one}", False) for one in ("summarizer", "scorer"))


def _contender(
    given: str | Policy | PolicyFunction, summarizer: Summarizer | None, scorer: Scorer | None
) -> Contender:
    if isinstance(given, str):
        return _by_name(given.strip(), summarizer, scorer)
    policy = as_policy(given)
    if not is_policy(policy):
        raise InvalidSetting(
            "policies: expected names of policies, or objects with name, version, max_messages "
            f"and propose(), found {shown(given)}"
        )
    check_advised(policy, summarizer, scorer)
    return Contender(policy.name, lambda _: policy, _target_of(policy))


def _by_name(given: str, summarizer: Summarizer | None, scorer: Scorer | None) -> Contender:
    name, rest = name_and_settings(given)
    settings: dict[str, Any] = {}
    for one in rest:
        key, _, value = one.partition("=")
        settings[key] = _value(value)
    settings = by_own_name(settings)
    session = {key: settings.pop(key) for key in SESSION_SETTINGS if key in settings}
    made: Callable[[Sequence[Need]], Policy | None]
    target = TARGET
    if name in (WHOLE, HINDSIGHT, *ON_REQUEST):
        if settings:
            raise InvalidSetting(f"policy {name!r}: expected no settings, found {sorted(settings)}")
        made = _BASELINES[name]
    else:
        if name not in POLICIES and name not in ALIASES:
            known = [*sorted(POLICIES), *ON_REQUEST]
            raise InvalidSetting(f"policy: expected one of {known}, found {name!r}")
        if scorer is not None and name in ("importance", "smart"):
            settings.setdefault("scorer", "model")
        expected = [*settings_of_policy(name), *SESSION_SETTINGS]
        if unknown := sorted(settings.keys() - set(expected)):
            raise InvalidSetting(
                f"policy {name!r}: expected settings among {expected}, found {unknown}"
            )
        policy = policy_named(name, settings)
        check_advised(policy, summarizer, scorer)
        target = _target_of(policy)
        made = lambda _: policy  # noqa: E731 - one of two ways to make it
    contender = Contender(
        given,
        made,
        session.get("target_usage", target),
        session.get("compact_threshold", THRESHOLD),
    )
    _check_shares(contender)
    return contender


_BASELINES: Final[dict[str, Callable[[Sequence[Need]], Policy | None]]] = {
    WHOLE: lambda _: None,
    HINDSIGHT: hindsight,
    "recency": lambda _: recency(),
    "random": lambda _: chance(),
    "masking": lambda _: Masking(),
}


def _target_of(policy: Policy) -> float:
    """The target that a policy wants where the session's settings name none."""
    own = getattr(policy, "target_usage", None)
    return float(own) if isinstance(own, int | float) else TARGET


def _check_shares(contender: Contender) -> None:
    shares = (contender.threshold, contender.target)
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in shares):
        raise InvalidSetting(
            f"{contender.label}: expected target_usage and compact_threshold to be numbers, "
            f"found {contender.target!r} and {contender.threshold!r}"
        )
    make_budget(1_000, contender.threshold, contender.target)


def _value(text: str) -> Any:
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return text
