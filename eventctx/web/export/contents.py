"""The contents of a file: elements that hold data, and blocks of bodies, compressed one by one.

A body is followed by its parts, its demands and the trees of its texts, which compress well next
to it.

A page decodes a block when one of its messages is first seen, so a large file opens as fast as a
small one. A block ends after 256 bodies, or earlier where they are long.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.log.store import Address, EventStore
from eventctx.projections.timeline.columns import Document
from eventctx.web.bodies import demands_of_messages, messages_at, parts_of_message
from eventctx.web.export.cut import HeldContents
from eventctx.web.renderer import Renderer

_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

BLOCK: Final = 256
BLOCK_BYTES: Final = 2 * 2**20
"""Most bytes of a block before compression, unless a single body is longer."""


class BodyBlock(NamedTuple):
    """Bodies from one address to another: the base64 of their JSON, compressed."""

    first: Address
    last: Address
    bodies: int
    data: str


def addresses(document: Document, shown: HeldContents) -> list[Address]:
    """Where the bodies lie that a file holds, in the order of the log."""
    messages, extras = document["messages"], document["extras"]
    found = {
        Address(messages["position"][number], messages["index"][number]) for number in shown.numbers
    }
    for place in shown.extras:
        extra = extras[place]
        if "position" in extra:
            found.add(Address(extra["position"], extra["index"]))
    return sorted(found)


def demanding(document: Document) -> frozenset[Address]:
    """Where the messages lie in which a person demands something."""
    messages = document["messages"]
    columns = (messages["position"], messages["index"], messages["demands"])
    return frozenset(Address(at, index) for at, index, count in zip(*columns, strict=True) if count)


async def blocks(
    store: EventStore,
    session: str,
    places: Sequence[Address],
    with_demands: frozenset[Address],
    redactor: ResultRedactor,
    renderer: Renderer,
) -> AsyncIterator[BodyBlock]:
    """The bodies at these places, in blocks, some with their demands.

    In place of a damaged one is what is wrong.
    """
    block: list[tuple[Address, bytes]] = []
    size = 0
    for start in range(0, len(places), BLOCK):
        wanted = places[start : start + BLOCK]
        for place, message in zip(wanted, await messages_at(store, session, wanted), strict=True):
            shown = redactor.document(message)
            data = msgspec.json.encode(shown)
            more: dict[str, Any] = {
                "parts": parts_of_message(shown),
                "texts": await renderer.message(shown),
            }
            if place in with_demands:
                more["demands"] = demands_of_messages([shown])[0]
            if any(more.values()):
                data += b"," + msgspec.json.encode(more)
            if block and (len(block) == BLOCK or size + len(data) > BLOCK_BYTES):
                yield _packed(block)
                block, size = [], 0
            block.append((place, data))
            size += len(data)
    if block:
        yield _packed(block)


def _packed(block: Sequence[tuple[Address, bytes]]) -> BodyBlock:
    rows = [b"[%d,%d,%b]" % (*place, data) for place, data in block]
    return BodyBlock(block[0][0], block[-1][0], len(block), packed(b"[" + b",".join(rows) + b"]"))


def packed(data: bytes) -> str:
    """Compressed, as base64. Without a time of its own, the same data makes the same text."""
    return base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode()


def block_element(block: BodyBlock) -> bytes:
    """A block as an element of the page."""
    return (
        b'<script type="application/json" class="bodies" '
        b'data-first="%d.%d" data-last="%d.%d">"%b"</script>\n'
        % (*block.first, *block.last, block.data.encode())
    )


def packed_element(name: str, value: Any) -> bytes:
    """A value as compressed JSON, in an element of the page."""
    data = packed(msgspec.json.encode(value))
    return f'<script type="application/json" id="{name}">"{data}"</script>\n'.encode()


def json_element(name: str, value: Any) -> bytes:
    """A value as JSON that anybody can read, in an element of the page."""
    # All that is not ASCII is written as escapes, so that the source turns nothing around either.
    data = json.dumps(value, separators=(",", ":")).translate(_ESCAPES)
    return f'<script type="application/json" id="{name}">{data}</script>\n'.encode()
