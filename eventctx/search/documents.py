"""The texts of a search: records become documents, a query becomes terms, a hit a snippet.

Clears and sets take messages out of the transcript, but not out of the search; only an erasure
does. A message's number is the count of the messages added to its stream before, so the state of
the fold is that count, and a fork continues from its parent's.

The whole grammar of a query: words; ``"several words"`` that follow each other, of which the first
``MAX_WORDS`` count; ``begin*`` for every word that begins so. All else is literal: no text is an
error, and no word is an operator.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.log.store import Address
from eventctx.messages.encoding import decode_body
from eventctx.messages.recall_text import text_of
from eventctx.search.index import Document, Gone, Lineage, Place, Term
from eventctx.text import pattern

VERSION: Final = 2
"""Version of the documents. Raise it when a message's document changes: indexes are rebuilt."""

_HOLDS_MESSAGES: Final = frozenset(("context:message_added", "context:messages_set"))

# Scripts without spaces between words: a word is found as a sequence of its characters.
_UNSPACED: Final = pattern(
    "([\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f])"
)
_IDENTIFIER: Final = pattern(r"\b\w*[A-Z_]\w*")
"""Words with a capital letter or an underscore: no other word has parts."""
_HUMP: Final = pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST_IDENTIFIER: Final = 64


def initial() -> int:
    """The number of an empty stream's first message."""
    return 0


def evolve(following: int, record: Record) -> int:
    """The number of the next message after ``record``."""
    if record.type == "context:message_added":
        return following + 1
    return following + len(record.bodies) if record.type == "context:messages_set" else following


def documents(following: int, record: Record) -> list[Document]:
    """The documents of a record's messages; ``following`` is the state before it.

    The record must be read with its bodies. A message whose body was erased, or is no message,
    keeps its place and has no words.
    """
    if record.type not in _HOLDS_MESSAGES:
        return []
    found: list[Document] = []
    for index, body in enumerate(record.bodies):
        place = Place(record.stream, record.position, index, following + index, record.time)
        text = "" if body.data is None else _text(body.data)
        found.append(Document(place, space_out(text), parts_of(text)))
    return found


def erased(record: Record) -> list[Address]:
    """Addresses, in the record's own stream, of the bodies that ``record`` lists as erased."""
    if record.type != "context:erased":
        return []
    try:
        event: Any = decode_known(record)
    except DecodeError:
        # One unreadable record must not break the search in all other sessions. The body is gone
        # from the store, so its message is never shown.
        return []
    return [Address(position, index) for position, index in event.bodies]


def deleted(batch: Sequence[Record]) -> list[str]:
    """The streams that ``batch`` says were deleted. Their names are not used again."""
    return [record.stream for record in batch if record.type == "session:deleted"]


def read(
    batch: Sequence[Record],
    lineages: Mapping[str, Lineage],
    following: Callable[[Lineage], int],
) -> tuple[list[Document], list[Gone]]:
    """The documents of consecutive records of any streams, and the addresses of erased bodies.

    ``lineages`` are those of all streams in ``batch``; ``following`` gives the state of a stream,
    or of a fork's inherited part, before the batch.
    """
    found: list[Document] = []
    gone: list[Gone] = []
    states: dict[str, int] = {}
    for record in batch:
        lineage = lineages[record.stream]
        state = states.get(record.stream)
        if state is None:
            # The records that a fork inherits may be in the same batch.
            state = max([following(lineage), *_numbers_after(found, lineage)])
        found += documents(state, record)
        states[record.stream] = evolve(state, record)
        gone += [
            Gone(segment.stream, *address)
            for address in erased(record)
            for segment in lineage
            if segment.first <= address.position <= segment.last
        ]
    return found, gone


def _numbers_after(found: Sequence[Document], lineage: Lineage) -> list[int]:
    return [
        place.number + 1
        for segment in lineage[1:]
        for place, _, _ in found
        if segment.stream == place.stream and segment.first <= place.position <= segment.last
    ]


def _text(data: bytes) -> str:
    try:
        message = decode_body(data)
    except msgspec.DecodeError:
        return ""
    return text_of(message) if isinstance(message, dict) else ""


def space_out(text: str) -> str:
    """The text with spaces around each character of scripts without spaces between words."""
    return text if text.isascii() else _UNSPACED.sub(r" \1 ", text)


def parts_of(text: str) -> str:
    """The words inside identifiers: ``max_retryCount`` consists of max, retry and Count.

    Each identifier once, its words on a line of their own.
    """
    # Nearly all of a text is in small letters, which ``islower`` sees far faster than a pattern.
    if "_" not in text and text.islower():
        return ""
    some = " ".join([one for one in text.split() if "_" in one or not one.islower()])
    found: list[str] = []
    for word in dict.fromkeys(_IDENTIFIER.findall(some)):
        if len(word) > _LONGEST_IDENTIFIER:
            continue
        parts = _HUMP.sub(" ", word.replace("_", " ")).split()
        if len(parts) > 1 or (parts and parts[0] != word):
            found.append(" ".join(parts))
    return "\n".join(found)


MAX_TERMS: Final = 64
"""Most terms of a query; the rest is ignored. Nobody types more, but programs paste long texts."""

MAX_QUERY: Final = 4_000
"""Characters of a query that are parsed; the rest is ignored."""

SNIPPET_CHARACTERS: Final = 240

_TERM: Final = pattern(r'"([^"]*)"?(\*?)|([^\s"]+)')
MAX_WORDS: Final = 64
"""Words of a phrase; of a script without spaces, characters."""

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
            text = _first_words(space_out(text.rstrip("*") if plain else text)).strip()
            found[Term(text, prefix)] = None
        if len(found) == MAX_TERMS:
            break
    return list(found)


def _first_words(text: str) -> str:
    """The first ``MAX_WORDS`` words of a phrase: each costs an index all of its places."""
    ends = [match.end() for match in islice(_TOKEN.finditer(text), MAX_WORDS)]
    return text[: ends[-1]] if len(ends) == MAX_WORDS else text


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs")


def words(text: str) -> list[str]:
    """The words of a text as the index has them: in lower case, without accents."""
    return _TOKEN.findall(_MARKS.sub("", _fold_text(space_out(_compose(text)))))


def matches(text: str, terms: Sequence[Term]) -> list[tuple[int, int, int]]:
    """``(start, end, term)`` of every match in ``text``, in order; ``term`` counts from 0.

    Offsets are in ``text`` in Unicode's composed form (NFC), which nearly all texts have already.
    """
    folded = _fold_text(_compose(text))
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
    text = _compose(text)
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


def _compose(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _fold_text(text: str) -> str:
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
