"""Recall: from records to the documents of a search, over everything that was ever said.

Clears and sets take messages out of the transcript, never out of here; only an erasure does. A
message's number is the count of the messages that its stream was given before, so the fold needs
no more than that count, and a fork goes on from its parent's.
"""

from __future__ import annotations

import re
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

VERSION: Final = 1
"""Goes up when a message's document would come out differently; indexes are then made anew."""

_HOLDS_MESSAGES: Final = frozenset(("context:message_added", "context:messages_set"))

# Scripts without spaces between words: a word of them is found as a run of its characters.
_UNSPACED: Final = re.compile(
    "([\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f])"
)
_WORD: Final = re.compile(r"\w+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
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
    """What ``record`` said; ``following`` is the state before it. Needs the bodies' data.

    A message whose body was erased, or is no message, keeps its place and has no words.
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
    """Addresses of the bodies that ``record`` says were erased, in the record's own stream."""
    if record.type != "context:erased":
        return []
    try:
        event: Any = decode_known(record)
    except DecodeError:
        # One unreadable record must not end the search of all other sessions; the body is gone
        # from the store, so the message is never shown.
        return []
    return [Address(position, index) for position, index in event.bodies]


def read(
    batch: Sequence[Record],
    lineages: Mapping[str, Lineage],
    following: Callable[[Lineage], int],
) -> tuple[list[Document], list[Gone]]:
    """The documents of neighbouring records of any streams, and the bodies they say were erased.

    ``lineages`` is of every stream among them; ``following`` gives the state of a stream, or of
    what a fork inherits, before the batch.
    """
    found: list[Document] = []
    gone: list[Gone] = []
    states: dict[str, int] = {}
    for record in batch:
        lineage = lineages[record.stream]
        state = states.get(record.stream)
        if state is None:
            # What a fork inherits may be in the same batch.
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
    except (msgspec.DecodeError, RecursionError):
        return ""
    return text_of(message) if isinstance(message, dict) else ""


def spaced(text: str) -> str:
    """The text with spaces between the characters of scripts that have none between words."""
    return text if text.isascii() else _UNSPACED.sub(r" \1 ", text)


def parts_of(text: str) -> str:
    """The words that identifiers are made of: ``max_retryCount`` is also max, retry and Count.

    Each identifier once, on a line of its own.
    """
    found: list[str] = []
    for word in dict.fromkeys(_WORD.findall(text)):
        if len(word) > _LONGEST_IDENTIFIER or (word.islower() and "_" not in word):
            continue
        parts = _HUMP.sub(" ", word.replace("_", " ")).split()
        if len(parts) > 1 or (parts and parts[0] != word):
            found.append(" ".join(parts))
    return "\n".join(found)
