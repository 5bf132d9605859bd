"""Short forms of session names that name the same session on a command line."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from typing import Final

from eventctx.text import pattern

GAP: Final = "…"
"""Stands for any characters in a name, on screens and on command lines."""

_LEAST: Final = 8
"""Characters of an id of hex digits that are enough in most stores."""

_WHOLE: Final = 12
"""Names up to this length are shown whole."""

_HEX: Final = pattern(r"[0-9a-f]{8}")

_LARGE: Final = 200
"""Of more names with one beginning, none is looked at for its end."""

_LAST: Final = "\U0010ffff"
"""Follows every character of a name."""


def fits(name: str, session: str) -> bool:
    """Whether ``name`` is the beginning of the session's name, or its pieces around gaps."""
    first, *rest = name.split(GAP)
    if not session.startswith(first):
        return False
    at = len(first)
    for piece in rest:
        found = session.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def short_names(sessions: Iterable[str]) -> dict[str, str]:
    """The shortest beginning of each name that no other begins with, at least 8 to 12 characters.

    For a name that others begin with, such as those of its agents, it need not tell these apart:
    it is meant then. Of a long beginning the middle is left out where the rest still tells.
    """
    ordered = sorted(sessions)
    short: dict[str, str] = {}
    for place, name in enumerate(ordered):
        behind = bisect(ordered, name + _LAST, place)  # past the names that begin with this one
        near = [*ordered[max(0, place - 1) : place], *ordered[behind : behind + 1]]
        shared = max([_shared(name, other) for other in near], default=0)
        length = max(_LEAST if _HEX.match(name) else _WHOLE, shared + 1)
        short[name] = name if len(name) <= _WHOLE or length >= len(name) else name[:length]
    families: dict[str, list[str]] = {}
    for name in ordered:
        families.setdefault(name[:_LEAST], []).append(name)
    for name in ordered:
        if len(short[name]) > _WHOLE:
            short[name] = _with_gap(name, short[name], families[name[:_LEAST]])
    return short


def _with_gap(name: str, short: str, family: list[str]) -> str:
    """A beginning and an end that mean ``name`` and no other, if that is shorter."""
    if len(family) > _LARGE:
        return short
    for length in range(3, len(short) - _LEAST - 1):
        found = name[:_LEAST] + GAP + name[-length:]
        if all(other.startswith(name) for other in family if fits(found, other)):
            return found
    return short


def _shared(one: str, other: str) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
