"""Values that context-simple and context-persistent accept, converted to ones that work here.

Those modules pass nearly any value on, and a strange one fails in the first request or means
nothing. A profile that mounts there must mount here, so such a value is converted, cut to the
nearest one that works, or replaced by the default. A warning says what was given, what is used, and
why. The settings of our own stay strict: no profile has a wrong one yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, Final, NamedTuple

from eventctx.log.arguments import shown
from eventctx.log.usage import MOST_TOKENS
from eventctx.policies.named import ALIASES as OTHER_POLICIES
from eventctx.policies.named import POLICIES
from eventctx.session.settings import ALIASES, Settings

LOWEST_THRESHOLD: Final = 0.001
"""The smallest share of a budget at which a compaction can begin."""

_THEIR_STRATEGIES: Final = {"progressive": "ladder", "summary": "summarize"}
"""The policy for each strategy of context-simple."""

_NEEDED: Final = {"custom": "function", "pipeline": "policies"}
"""The setting that a strategy cannot do without."""

_log = logging.getLogger("eventctx.adapters.amplifier")


class Default(NamedTuple):
    """The default takes the place of a value, for this reason."""

    why: str


class Replacement(NamedTuple):
    """Another value takes the place of the given one, for this reason."""

    value: Any
    why: str


Coerced = Any
"""``Default``, ``Replacement``, or a value that is used as it was given."""


def coerced(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with values that work, under one name for each setting; logs the changes.

    A missing setting has its default.
    """
    named = _under_one_name(config)
    for name, convert in CONVERTED.items():
        if name not in named:
            continue
        given = named[name]
        found = convert(given)
        if isinstance(found, Default):
            del named[name]
            warn(name, given, "the default", found.why)
        elif isinstance(found, Replacement):
            named[name] = found.value
            warn(name, given, shown(found.value), found.why)
        else:
            named[name] = found
    _check_needs(named)
    _order_thresholds(named)
    return named


def warn(name: str, given: object, used: str, why: str) -> None:
    """Log that another value than the given one is used."""
    _log.warning("setting %r: %s was given, %s is used: %s", name, shown(given), used, why)


def _under_one_name(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with text names; one under its own name hides those under its other names."""
    named = {name: value for name, value in config.items() if isinstance(name, str)}
    for name in config.keys() - named.keys():
        _log.warning("setting %s is unknown and has no effect: a name is a text", shown(name))
    for other, own in ALIASES.items():
        if other in named and named.get(own) is not None:
            given = named.pop(other)
            if given != named[own]:
                warn(other, given, f"{own}={shown(named[own])}", "both name one setting")
    return named


# -- kinds of values -----------------------------------------------------------------------------


def _number(value: object) -> float | int | None:
    """The number that a value is, or that a text spells; None for any other."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return _number(kind(value))
            except ValueError:
                continue
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isinstance(value, float) and isnan(value) else value


def _as_given(value: object, used: float | int, why: str) -> Coerced:
    """``used``; ``Replacement`` if that is not the given value."""
    return used if type(value) is type(used) and value == used else Replacement(used, why)


def _tokens(value: object) -> Coerced:
    number = _number(value)
    if number is None:
        return Default("expected a number of tokens")
    if number < 1:
        return Default("no message fits into less than one token")
    if number > MOST_TOKENS:
        return Replacement(MOST_TOKENS, "this is the largest budget")
    return _as_given(value, int(number), "tokens are counted in whole numbers")


def _cap(value: object) -> Coerced:
    return None if value is None else _tokens(value)


def _count(value: object) -> Coerced:
    number = _number(value)
    if number is None:
        return Default("expected a number")
    if number < 0:
        return Replacement(0, "a count begins at 0")
    if number > MOST_TOKENS:
        return Replacement(MOST_TOKENS, "this is the largest count")
    return _as_given(value, int(number), "expected a whole number")


def _messages(value: object) -> Coerced:
    if value is None:
        return None
    found = _count(value)
    least = found.value if isinstance(found, Replacement) else found
    if not isinstance(found, Default) and least < 1:
        return Default("a limit below one message would leave none")
    return found


def _share(value: object) -> Coerced:
    number = _number(value)
    if number is None:
        return Default("expected a share from 0 to 1")
    if not 0 <= number <= 1:
        return Replacement(0.0 if number < 0 else 1.0, "a share is a number from 0 to 1")
    return _as_share(value, number)


def _as_share(value: object, number: float) -> Coerced:
    return number if number is value else Replacement(number, "expected a number")


def _threshold(value: object) -> Coerced:
    number = _number(value)
    if number is None:
        return Default("expected a share of the budget, above 0 and at most 1")
    if number <= 0:
        return Default("a compaction that is always due would come with every request")
    if number > 1:
        why = "a request above the whole budget cannot be sent, so it is compacted there at last"
        return Replacement(1.0, why)
    if number < LOWEST_THRESHOLD:
        return Replacement(LOWEST_THRESHOLD, "this is the lowest threshold")
    return _as_share(value, number)


def _target(value: object) -> Coerced:
    number = _number(value)
    if number is None or number <= 0:
        return Default("expected a share of the budget, above 0 and below compact_threshold")
    return _as_share(value, number)


def _switch(value: object) -> Coerced:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, str | int | float) else ""
    if word in ("true", "yes", "on", "1", "1.0"):
        return Replacement(True, "expected true or false")
    if word in ("false", "no", "off", "0", "0.0"):
        return Replacement(False, "expected true or false")
    return Default("expected true or false")


def _strategy(value: object) -> Coerced:
    if value is None:
        return None
    if isinstance(value, str):
        if value in _THEIR_STRATEGIES:
            return _THEIR_STRATEGIES[value]
        if OTHER_POLICIES.get(value, value) in POLICIES:
            return value
    return Default("expected 'simple', 'smart' or 'custom'")


CONVERTED: Final[Mapping[str, Callable[[object], Coerced]]] = {
    "auto_compact": _switch,
    "compact_threshold": _threshold,
    "compaction_strategy": _strategy,
    "compaction_threshold": _threshold,
    "export_on_compact": _switch,
    "max_messages": _messages,
    "max_tokens": _cap,
    "max_tokens_fallback": _tokens,
    "protected_recent": _share,
    "protected_tool_results": _count,
    "target": _target,
    "target_usage": _target,
    "truncate_chars": _count,
}
"""The settings of both modules and of their documents that have a counterpart, and their kinds."""


def _check_needs(named: dict[str, Any]) -> None:
    """Leave out a strategy without the setting that it needs: the host's modules ignore it."""
    strategy = named.get("compaction_strategy")
    needed = _NEEDED.get(strategy) if isinstance(strategy, str) else None
    if needed is not None and not named.get(needed):
        del named["compaction_strategy"]
        warn("compaction_strategy", strategy, "the default", f"it needs the setting {needed!r}")


def _order_thresholds(named: dict[str, Any]) -> None:
    """Lower a target that is not below the threshold: a compaction has to make room."""
    defaults = Settings()
    threshold = named.get("compact_threshold", named.get("compaction_threshold"))
    threshold = defaults.compact_threshold if threshold is None else threshold
    own = "target" if "target" in named else "target_usage"
    target = named.get(own, defaults.target_usage)
    if target < threshold:
        return
    below = defaults.target_usage
    used = below if below < threshold else threshold / 2
    why = f"a compaction ends below compact_threshold, which is {threshold}"
    if own in named:
        warn(own, target, shown(used), why)
    else:
        text = "setting %r: its default is %s, %s is used: %s"
        _log.warning(text, own, target, used, why)
    named[own] = used
