"""Turns records to the documents of a search, for every message that was ever added.

Clears and sets take messages out of the transcript, but not out of the search; only an erasure
does. A message's number is the count of the messages added to its stream before, so the state of
the fold is that count, and a fork continues from its parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.log.store import Address
from eventctx.messages.encoding import decode_body
from eventctx.messages.recall_text import text_of
from eventctx.search.index import Document, Gone, Lineage, Place
from eventctx.text import pattern

VERSION: Final = 2
"""Version of the documents. Raise it when a message's document changes: indexes are rebuilt."""

_HOLDS_MESSAGES: Final = frozenset(("context:message_added", "context:messages_set"))

# Scripts without spaces between words: a word is found as a sequence of its characters.
_UNSPACED: Final = pattern(
    "([\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f])"
)
_WORD: Final = pattern(r"\w+")
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
        found.append(Document(place, spaced(text), parts_of(text)))
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


def spaced(text: str) -> str:
    """The text with spaces around each character of scripts without spaces between words."""
    return text if text.isascii() else _UNSPACED.sub(r" \1 ", text)


def parts_of(text: str) -> str:
    """The words inside identifiers: ``max_retryCount`` consists of max, retry and Count.

    Each identifier once, its words on a line of their own.
    """
    found: list[str] = []
    for word in dict.fromkeys(_WORD.findall(text)):
        if len(word) > _LONGEST_IDENTIFIER or (word.islower() and "_" not in word):
            continue
        parts = _HUMP.sub(" ", word.replace("_", " ")).split()
        if len(parts) > 1 or (parts and parts[0] != word):
            found.append(" ".join(parts))
    return "\n".join(found)
