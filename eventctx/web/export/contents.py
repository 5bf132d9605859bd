"""The contents of messages in a file: blocks of bodies, each compressed by itself.

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

from eventctx.errors import LogCorrupted
from eventctx.hooks.redact import Redactor
from eventctx.log.soundness import sound_bodies
from eventctx.log.store import Address, EventStore
from eventctx.messages.encoding import decode_body
from eventctx.projections.timeline.units import Document
from eventctx.web.export.cut import Shown

BLOCK: Final = 256
BLOCK_BYTES: Final = 2 * 2**20
"""Most bytes of a block before compression, unless a single body is longer."""


class Block(NamedTuple):
    """Bodies from one address to another: the base64 of their JSON, compressed."""

    first: Address
    last: Address
    bodies: int
    data: str


def addresses(document: Document, shown: Shown) -> list[Address]:
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


async def blocks(
    store: EventStore, session: str, places: Sequence[Address], redactor: Redactor | None
) -> AsyncIterator[Block]:
    """The bodies at these places, in blocks. Raises LogCorrupted for a damaged one."""
    block: list[tuple[Address, bytes]] = []
    size = 0
    for start in range(0, len(places), BLOCK):
        wanted = places[start : start + BLOCK]
        for place, body in zip(wanted, await sound_bodies(store, session, wanted), strict=True):
            try:
                data = shown_body(body.data, redactor)
            except ValueError as error:
                raise LogCorrupted(session, place.position, "a body is no JSON") from error
            if block and (len(block) == BLOCK or size + len(data) > BLOCK_BYTES):
                yield _packed(block)
                block, size = [], 0
            block.append((place, data))
            size += len(data)
    if block:
        yield _packed(block)


def shown_body(data: bytes | None, redactor: Redactor | None) -> bytes:
    """A body as a page gets it: JSON, redacted; ``null`` where it was erased.

    Raises ValueError for a body that is no JSON.
    """
    if data is None:
        return b"null"
    try:
        message = decode_body(data)
    except msgspec.DecodeError:
        # A foreign writer may have stored half a surrogate pair, which a browser shows.
        message = json.loads(data)
    if redactor is None:
        return data
    try:
        return msgspec.json.encode(redacted(message, redactor))
    except UnicodeEncodeError:
        return json.dumps(redacted(message, redactor)).encode()


def redacted(message: Any, redactor: Redactor) -> Any:
    """A message with the secrets in its texts and in its tools' arguments replaced."""
    # One level down, since the fields of a log line's top level have names that are exempt.
    return redactor.fields({"message": message})["message"]


def _packed(block: Sequence[tuple[Address, bytes]]) -> Block:
    rows = [b"[%d,%d,%b]" % (*place, data) for place, data in block]
    # Without a time of its own, the same bodies make the same bytes.
    data = gzip.compress(b"[" + b",".join(rows) + b"]", compresslevel=9, mtime=0)
    return Block(block[0][0], block[-1][0], len(block), base64.b64encode(data).decode())
