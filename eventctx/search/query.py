"""Parses a search query, and finds the piece of a text that shows why it matches.

The whole grammar: words; ``"several words"`` that follow each other; ``begin*`` for every word
that begins so. All else is literal: no text is an error, and no word is an operator.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from eventctx.search.documents import spaced
from eventctx.search.index import Term
from eventctx.text import pattern

MAX_TERMS: Final = 64
"""Most terms of a query; the rest is ignored. Nobody types more, but programs paste long texts."""

MAX_QUERY: Final = 4_000
"""Characters of a query that are parsed; the rest is ignored."""

SNIPPET_CHARACTERS: Final = 240

_TERM: Final = pattern(r'"([^"]*)"?(\*?)|([^\s"]+)')
_TOKEN: Final = pattern(r"\w+")
_MARKS: Final = pattern("[\u0300-\u036f]")
_SPACE: Final = pattern(r"\s+")


def parse(query: str) -> list[Term]:
    """The terms of a query; empty if it holds no word."""
    query = "".join([" " if _is_control(character) else character for character in query])
    found: dict[Term, None] = {}
    for quoted, star, plain in _TERM.findall(query[:MAX_QUERY]):
        text = plain or quoted
        prefix = bool(star) or plain.endswith("*")
        if words(text):
            found[Term(spaced(text.rstrip("*") if plain else text).strip(), prefix)] = None
        if len(found) == MAX_TERMS:
            break
    return list(found)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs")


def words(text: str) -> list[str]:
    """The words of a text as the index has them: in lower case, without accents."""
    return _TOKEN.findall(_MARKS.sub("", _folded(spaced(_composed(text)))))


def matches(text: str, terms: Sequence[Term]) -> list[tuple[int, int, int]]:
    """``(start, end, term)`` of every match in ``text``, in order; ``term`` counts from 0.

    Offsets are in ``text`` in Unicode's composed form (NFC), which nearly all texts have already.
    """
    folded = _folded(_composed(text))
    found: list[tuple[int, int, int]] = []
    for place, term in enumerate(terms):
        strict, loose = _patterns(term)
        spans = [match.span() for match in strict.finditer(folded)]
        # Without a match of whole words: inside an identifier, or in a script without spaces.
        spans = spans or [match.span() for match in loose.finditer(folded)]
        found += [(start, end, place) for start, end in spans if end > start]
    return sorted(found)


def snippet(text: str, terms: Sequence[Term], characters: int = SNIPPET_CHARACTERS) -> str:
    """The part of ``text`` with most of ``terms``, on one line, of at most ``characters``.

    ``…`` marks text left out. Without a match, it is the beginning of the text.
    """
    text = _composed(text)
    room = max(characters - 2, 1)
    start = _fullest(matches(text, terms), room * 2 // 3)
    first = max(0, min(start - room // 3, len(text) - room))
    # Begin at a word, if one begins before the match.
    gap = re.search(r"\s", text[first:start]) if first > 0 else None
    first += gap.end() if gap is not None else 0
    # White space shrinks, so take more characters than there is room for.
    last = max(start, first) + room * 4
    piece = _SPACE.sub(" ", text[first:last]).strip()
    cut = len(piece) > room or bool(text[last:].strip())
    if len(piece) > room:
        piece = piece[:room]
        if " " in piece[room * 2 // 3 :]:
            piece = piece[: piece.rindex(" ")]
    return f"{'…' if text[:first].strip() else ''}{piece}{'…' if cut else ''}"


def _fullest(found: Sequence[tuple[int, int, int]], characters: int) -> int:
    """The start of the part of the text with most different terms; the first of equal parts."""
    best = start = after = 0
    inside: Counter[int] = Counter()
    for place, (first, _, term) in enumerate(found):
        while after < len(found) and (after <= place or found[after][1] <= first + characters):
            inside[found[after][2]] += 1
            after += 1
        if len(inside) > best:
            best, start = len(inside), first
        inside[term] -= 1
        if not inside[term]:
            del inside[term]
    return start


@lru_cache(maxsize=256)
def _patterns(term: Term) -> tuple[re.Pattern[str], re.Pattern[str]]:
    escaped = [re.escape(word) for word in words(term.text)]
    behind = "" if term.prefix else r"(?!\w)"
    strict = re.compile(r"(?<!\w)" + r"\W+".join(escaped) + behind)
    return strict, re.compile(r"[\W_]*".join(escaped))


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    """The text in lower case and without accents, character by character."""
    if text.isascii():
        return text.lower()
    return text.translate({ord(one): _fold(one) for one in set(text) if not "a" <= one <= "z"})


@lru_cache(maxsize=4096)
def _fold(character: str) -> str:
    decomposed = unicodedata.normalize("NFD", character)
    if all(unicodedata.category(mark) == "Mn" for mark in decomposed[1:]):
        character = decomposed[0]
    lower = character.casefold()
    return lower if len(lower) == 1 else character.lower()[:1]
