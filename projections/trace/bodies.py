"""The texts that a trace with contents may show again, and when they are forgotten.

A request shows messages of long ago, so their bodies are kept until its record comes. What no view
shows any more goes when much has gathered, and at once where it was erased.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.log.events import Erased
from eventctx.log.record import Record
from eventctx.projections.trace.genai_messages import Clean, genai_message
from eventctx.projections.view.layout import Entry
from eventctx.projections.view.render import addresses, render
from eventctx.projections.view.state import ViewState

MAX_KEPT: Final = 8 * 2**20
"""Bytes of bodies kept before those out of view are forgotten; more where the view is larger."""


class Texts(msgspec.Struct, frozen=True):
    """What is kept of one stream.

    ``bodies`` by position and index, None for an erased one, and ``made``, messages in the
    conventions' form by entry of a view, only ever grow and never change, so values may share them.
    ``size`` is the bodies' in bytes, at ``limit`` some are forgotten.
    """

    bodies: dict[tuple[int, int], bytes | None]
    made: dict[Entry, str]
    size: int = 0
    limit: int = MAX_KEPT


def none_yet() -> Texts:
    """Of a stream without records."""
    return Texts({}, {})


def keep(texts: Texts, record: Record) -> Texts:
    """With the bodies of ``record``, as far as it was read with them."""
    grown = 0
    for index, body in enumerate(record.bodies):
        if body.data is not None or body.erased:
            texts.bodies[record.position, index] = body.data
            grown += len(body.data or b"")
    return msgspec.structs.replace(texts, size=texts.size + grown) if grown else texts


def forget(texts: Texts, view: ViewState) -> Texts:
    """Without what ``view`` does not show, if much has gathered."""
    if texts.size <= texts.limit:
        return texts
    entries = view.layout.entries()
    places = [(one.position, one.index) for one in addresses(entries)]
    bodies = {place: texts.bodies[place] for place in places if place in texts.bodies}
    made = {entry: texts.made[entry] for entry in entries if entry in texts.made}
    size = sum([len(data or b"") for data in bodies.values()])
    return Texts(bodies, made, size, max(MAX_KEPT, 2 * size))


def erase(texts: Texts, event: Erased) -> Texts:
    """With nothing left of the bodies that the event says were emptied."""
    gone = dict.fromkeys(event.bodies)
    bodies = texts.bodies | {place: None for place in gone if place in texts.bodies}
    made = {
        entry: text
        for entry, text in texts.made.items()
        if entry.ref is None or (entry.ref.position, entry.ref.index) not in gone
    }
    size = sum([len(data or b"") for data in bodies.values()])
    return Texts(bodies, made, size, texts.limit)


def shown(texts: Texts, entry: Entry, clean: Clean) -> str | None:
    """The message of an entry in the conventions' form, as JSON; None where its body is not kept.

    ``clean`` redacts a text.
    """
    known = texts.made.get(entry)
    if known is None:
        places = [(one.position, one.index) for one in addresses([entry])]
        if any(place not in texts.bodies for place in places):
            return None
        (message,) = render([entry], {place: texts.bodies[place] for place in places})
        known = msgspec.json.encode(genai_message(message, clean)).decode()
        texts.made[entry] = known
    return known
