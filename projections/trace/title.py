"""The title of a session on its traces: the beginning of the first words of a person in it.

No event names a session, so its first task tells it from others in a list of search results. It is
content: spans have it only if contents are enabled.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.log.events import Erased, MessageAdded, MessagesSet
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.messages.parts import read_parts
from eventctx.projections.flat import read
from eventctx.projections.trace.genai_messages import Clean, plain_text

MAX_TITLE: Final = 80
"""Characters of a title."""

_SPEAKS: Final = frozenset(("context:message_added", "context:messages_set"))


class Title(msgspec.Struct, frozen=True):
    """A session's title, and where the message stands that it is taken from.

    ``text`` is None if that message has no words, or they are erased: no other takes its place.
    """

    position: int
    index: int
    text: str | None


def title_of(title: Title | None, record: Record, clean: Clean) -> Title | None:
    """The title after ``record``, which must be read with its bodies; ``clean`` redacts a text."""
    if title is None:
        return _first(record, clean) if record.type in _SPEAKS else None
    if title.text is not None and record.type == "context:erased":
        event = read(record)
        if isinstance(event, Erased) and (title.position, title.index) in event.bodies:
            return Title(title.position, title.index, None)
    return title


def _first(record: Record, clean: Clean) -> Title | None:
    event = read(record)
    for index, body in enumerate(record.bodies):
        harness = isinstance(event, MessageAdded) and event.origin is not None
        harness = harness or (isinstance(event, MessagesSet) and index in event.harness)
        if harness or not decode_facts(body.facts).human:
            continue
        text = None if body.data is None else _beginning(decode_body(body.data), clean)
        return Title(record.position, index, text)
    return None


def _beginning(message: dict[str, object], clean: Clean) -> str | None:
    """The first words of a message, on one line; None if it has none."""
    for part in read_parts(message):
        if part.kind == "text":
            text = " ".join(plain_text(part.value, clean).split())
            if text:
                return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1]}…"
    return None
