"""A demand that a later one of the same person replaces: "budget 300", then "budget 800".

The rule is narrow, since a demand that is taken for replaced is no longer asked for. Both must say
the same words in the same order, but for

- one number, and a word for a limit ("budget", "at most") is next to it;
- one word, and the later one says that things change ("use metric now");
- a negation ("Always run the tests", "Don't run the tests now").

Names of files and the like are words: "Never touch a.py" replaces nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventctx.text import pattern

_WORD: Final = pattern(r"[^\W_](?:[\w'./-]*\w)?")
_CHANGE: Final = frozenset(("now", "instead", "actually", "henceforth"))
_NEGATION: Final = frozenset(("don't", "dont", "never", "not", "no"))
_FILLING: Final = frozenset(
    (
        *("please", "ok", "okay", "so", "and", "but", "then", "just", "always", "do", "a", "an"),
        *("the", "let's", "yes", "on", "from", "sorry"),
    )
)
_LIMITS: Final = frozenset(
    (
        *("budget", "limit", "most", "least", "maximum", "max", "minimum", "timeout", "deadline"),
        *("width", "length", "under", "within", "below", "above"),
    )
)
_NUMBER: Final = pattern(r"\d[\d.,_]*(?:[a-z]{1,2}|%)?")


def find_superseded(said: Iterable[tuple[int, str]]) -> dict[int, int]:
    """Which of the demands a later one replaces: index by index, of sentences in their order.

    ``said`` has the number of each demand's message; one message does not replace its own words.
    """
    found: dict[int, int] = {}
    frames: dict[tuple[str, ...], tuple[int, int, tuple[str, ...], bool]] = {}
    for index, (message, sentence) in enumerate(said):
        words = _WORD.findall(sentence.lower().replace("’", "'"))
        changes = not _CHANGE.isdisjoint(words)
        negated = not _NEGATION.isdisjoint(words)
        core = tuple([w for w in words if w not in _CHANGE | _FILLING | _NEGATION])
        for frame in _frames(core):
            before = frames.get(frame)
            if (
                before is not None
                and before[1] != message
                and before[0] not in found
                and _replaces(before[2], core, before[3] != negated, changes)
            ):
                found[before[0]] = index
            frames[frame] = (index, message, core, negated)
    return found


def _frames(core: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    """The words of a demand with each one left open in turn, and all of them."""
    if len(core) <= 12:
        yield core
        for at in range(1, len(core)):
            yield (*core[:at], "", *core[at + 1 :])


def _replaces(
    earlier: tuple[str, ...], later: tuple[str, ...], opposed: bool, changes: bool
) -> bool:
    differing = [pair for pair in zip(earlier, later, strict=True) if pair[0] != pair[1]]
    if not differing:
        return opposed
    if opposed or len(differing) > 1:
        return False
    numbers = all(_NUMBER.fullmatch(one) for one in differing[0])
    return (numbers and not _LIMITS.isdisjoint(later)) or (
        changes and len(later) > 1 and not any(set("./_") & set(one) for one in differing[0])
    )
