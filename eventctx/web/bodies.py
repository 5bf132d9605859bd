"""The contents of a few messages at once; what is damaged does not take the others along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from eventctx.errors import LogCorrupted
from eventctx.log.integrity import check_bodies
from eventctx.log.store import Address, EventStore
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import decode_body


async def messages_at(
    store: EventStore, session: str, addresses: Sequence[Address]
) -> list[dict[str, Any] | None]:
    """The messages at ``addresses``, in that order; None for an erased one.

    One that lost its digest, or that is no message, is ``{"error": …}``. Raises StreamNotFound.
    """
    try:
        return await _read(store, session, addresses)
    except LogCorrupted as error:
        if len(addresses) == 1:
            return [{"error": str(error)}]
    found = []
    for one in addresses:
        found += await messages_at(store, session, (one,))
    return found


def demands_of_messages(messages: Sequence[Any]) -> list[list[str]]:
    """The demands in each message, which a person wrote; none where there is no message."""
    return [
        list(demands_in(one)) if isinstance(one, dict) and "error" not in one else []
        for one in messages
    ]


async def _read(
    store: EventStore, session: str, addresses: Sequence[Address]
) -> list[dict[str, Any] | None]:
    bodies = await store.bodies(session, addresses)
    check_bodies(session, zip(addresses, bodies, strict=True))
    found: list[dict[str, Any] | None] = []
    for address, body in zip(addresses, bodies, strict=True):
        try:
            message = None if body.data is None else decode_body(body.data)
        except msgspec.DecodeError as error:
            raise LogCorrupted(session, address.position, "a body is no JSON") from error
        found.append({"error": "no message"} if isinstance(message, list | str) else message)
    return found
