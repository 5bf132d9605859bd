"""Messages that a view does not show, or not whole, in runs of the same reason."""

from __future__ import annotations

from typing import NamedTuple

from eventctx.projections.explain.why import ViewHistory
from eventctx.projections.explain.wording import worded


class LeftOut(NamedTuple):
    """Messages of the transcript that a view leaves out or shortens for the same reason.

    ``disposition`` is a plan's, ``omitted`` for results that answer no call in view, or
    ``replaced`` for system messages whose place the host's own prompt takes. ``runs`` are pairs
    ``(first, last)`` of numbers; numbers inside a run that are no longer in the transcript do not
    end it. ``rule`` words the reason, true of all of them.
    """

    disposition: str
    reason: str
    runs: tuple[tuple[int, int], ...]
    rule: str = ""


def left_out(history: ViewHistory) -> tuple[LeftOut, ...]:
    """The transcript's messages that a view does not show whole, by disposition and reason."""
    runs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    rules: dict[tuple[str, str], set[str]] = {}
    last: tuple[str, str] | None = None
    for number in range(len(history.state.origins)):
        why = history.why(number)
        if why.standing in ("set", "cleared"):
            continue
        key = (why.standing, "" if why.ruling is None else why.ruling.reason)
        if why.standing == "whole":
            last = key
            continue
        own = runs.setdefault(key, [])
        rules.setdefault(key, set()).add("" if why.ruling is None else why.ruling.rule)
        if own and key == last:
            own[-1] = (own[-1][0], number)
        else:
            own.append((number, number))
        last = key
    return tuple(
        [LeftOut(*key, tuple(own), _joint(key[1], rules[key])) for key, own in runs.items()]
    )


def _joint(reason: str, rules: set[str]) -> str:
    return next(iter(rules)) if len(rules) == 1 else worded(reason)
