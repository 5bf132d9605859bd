"""Messages that a view does not show, or not whole, in runs of the same reason."""

from __future__ import annotations

from typing import NamedTuple

from eventctx.projections.explain.why import ViewHistory


class LeftOut(NamedTuple):
    """Messages of the transcript that a view leaves out or shortens for the same reason.

    ``disposition`` is a plan's, ``omitted`` for results that answer no call in view, or
    ``replaced`` for system messages whose place the host's own prompt takes. ``runs`` are pairs
    ``(first, last)`` of numbers; numbers inside a run that are no longer in the transcript do not
    end it.
    """

    disposition: str
    reason: str
    runs: tuple[tuple[int, int], ...]


def left_out(history: ViewHistory) -> tuple[LeftOut, ...]:
    """The transcript's messages that a view does not show whole, by disposition and reason."""
    runs: dict[tuple[str, str], list[tuple[int, int]]] = {}
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
        if own and key == last:
            own[-1] = (own[-1][0], number)
        else:
            own.append((number, number))
        last = key
    return tuple([LeftOut(*key, tuple(own)) for key, own in runs.items()])
