"""Bodies of views by their references: checked against their digests, and decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from eventctx.errors import LogCorrupted
from eventctx.log.integrity import sound_bodies
from eventctx.log.store import Address, EventStore
from eventctx.messages.encoding import decode_body
from eventctx.projections.view.refs import InsertionRef, MessageRef


def address_of(ref: MessageRef | InsertionRef) -> Address:
    """The address of a reference's body."""
    return Address(ref.position, ref.index)


async def sound_messages(
    store: EventStore, stream: str, addresses: Sequence[Address]
) -> list[dict[str, Any] | None]:
    """The messages at ``addresses``, in that order; None for an erased one.

    Raises LogCorrupted for a body that lost its digest or is no JSON.
    """
    messages: list[dict[str, Any] | None] = []
    bodies = await sound_bodies(store, stream, addresses)
    for address, body in zip(addresses, bodies, strict=True):
        try:
            messages.append(None if body.data is None else decode_body(body.data))
        except msgspec.DecodeError as error:
            problem = f"body {address.index} is no JSON"
            raise LogCorrupted(stream, address.position, problem) from error
    return messages
