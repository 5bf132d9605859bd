"""The texts that a trace with contents may need again, and when they are dropped.

A request contains messages of long ago, so the bodies of messages are kept for the requests to
come. Bodies that the view no longer shows are dropped when they have grown past a limit, and erased
bodies at once.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.log.events import Erased
from eventctx.log.record import Record
from eventctx.projections.trace.genai_messages import Clean, genai_message
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.render import addresses, render
from eventctx.projections.view.state import ViewState

MAX_KEPT: Final = 8 * 2**20
"""Bytes of bodies above which those out of view are dropped; more if the view itself is larger."""


class Texts(msgspec.Struct, frozen=True):
    """The texts kept of one stream.

    ``bodies`` are by position and index, None for an erased one; ``made`` are messages in the
    conventions' form, as JSON, by entry of a view. Entries of both are only added, never changed,
    so several ``Texts`` may share the dicts. ``size`` is that of the bodies in bytes; above
    ``limit``, bodies out of view are dropped.
    """

    bodies: dict[tuple[int, int], bytes | None]
    made: dict[Entry, str]
    size: int = 0
    limit: int = MAX_KEPT


def none_yet() -> Texts:
    """The texts of a stream without records."""
    return Texts({}, {})


def keep(texts: Texts, record: Record) -> Texts:
    """The texts with the bodies of ``record``, if it was read with its bodies."""
    grown = 0
    for index, body in enumerate(record.bodies):
        if body.data is not None or body.erased:
            texts.bodies[record.position, index] = body.data
            grown += len(body.data or b"")
    return msgspec.structs.replace(texts, size=texts.size + grown) if grown else texts


def forget(texts: Texts, view: ViewState) -> Texts:
    """The texts without those that ``view`` does not show, once they are above the limit."""
    if texts.size <= texts.limit:
        return texts
    entries = view.layout.entries()
    places = [(one.position, one.index) for one in addresses(entries)]
    bodies = {place: texts.bodies[place] for place in places if place in texts.bodies}
    made = {entry: texts.made[entry] for entry in entries if entry in texts.made}
    size = sum([len(data or b"") for data in bodies.values()])
    return Texts(bodies, made, size, max(MAX_KEPT, 2 * size))


def erase(texts: Texts, event: Erased) -> Texts:
    """The texts without the bodies that the event lists as erased."""
    gone = dict.fromkeys(event.bodies)
    bodies = texts.bodies | {place: None for place in gone if place in texts.bodies}
    made = {
        entry: text
        for entry, text in texts.made.items()
        if not any((one.position, one.index) in gone for one in addresses([entry]))
    }
    size = sum([len(data or b"") for data in bodies.values()])
    return Texts(bodies, made, size, texts.limit)


def shown(texts: Texts, entry: Entry, clean: Clean) -> str | None:
    """The message of an entry in the conventions' form, as JSON; None if its body is not kept.

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
