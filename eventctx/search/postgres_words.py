"""Messages and queries as the server's full-text search takes them: vectors and their conditions.

The words are cut here, by the same rule as a query's and as the index in a file has them, so that
every store finds the same messages. The server's own parser would take ``src/aaa.py`` for one word,
and fold letters by the locale of the database.

A vector has room for 16,383 places and for 255 places of one word. A longer message is cut to
several pieces, which overlap, so that a phrase across a cut is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from eventctx.search.index import Term
from eventctx.search.query import words

LONGEST_PHRASE: Final = 64
"""Words of a phrase that are compared; pieces of a message overlap by as many."""

_MOST_PLACES: Final = 16_000
_MOST_OF_A_WORD: Final = 250
_MOST_CHARACTERS: Final = 150_000
_LONGEST_WORD: Final = 500
_GAP: Final = 2  # no phrase reaches from the text into the parts of identifiers


class Vectors(NamedTuple):
    """A message as vectors; ``length`` is its number of words. Without words there are none."""

    pieces: list[str]
    length: int


class _Piece:
    """The places of words of a piece of a message."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._places: dict[str, list[str]] = {}
        self._characters = 0

    def add(self, word: str, label: str) -> None:
        places = self._places.get(word)
        if places is None:
            places = self._places[word] = []
            self._characters += len(word)
        self.end += 1
        places.append(f"{self.end}{label}")

    def takes(self, word: str) -> bool:
        return (
            self.end < _MOST_PLACES
            and self._characters < _MOST_CHARACTERS
            and len(self._places.get(word, ())) < _MOST_OF_A_WORD
        )

    def __str__(self) -> str:
        # A word consists of letters, digits and _, so nothing in it needs a quotation.
        return " ".join([f"'{word}':{','.join(at)}" for word, at in self._places.items()])


def vectors(text: str, parts: str) -> Vectors:
    """The vectors of a message with this text, and these words inside of its identifiers.

    Words of the text have the weight A, those of the parts have D.
    """
    said, inside = _cut(text), _cut(parts)
    return Vectors([str(piece) for piece in _pieces(said, inside)], len(said) + len(inside))


def condition(term: Term) -> str | None:
    """The condition of a term, as the server writes it; None if the term has no word."""
    found = [f"'{word}'" for word in _cut(term.text)[:LONGEST_PHRASE]]
    return " <-> ".join(found) + ":*" * term.prefix if found else None


def _cut(text: str) -> list[str]:
    return [word[:_LONGEST_WORD] for word in words(text)]


def _pieces(said: list[str], inside: list[str]) -> Iterator[_Piece]:
    if not said and not inside:
        return
    piece = _Piece()
    for found, label in ((said, "A"), (inside, "")):
        for place, word in enumerate(found):
            if not piece.takes(word):
                yield piece
                piece = _Piece()
                for before in found[max(0, place - LONGEST_PHRASE + 1) : place]:
                    piece.add(before, label)
            piece.add(word, label)
        piece.end += _GAP
    yield piece
