"""The contents of a few messages at once; what is damaged does not take the others along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import LogCorrupted
from eventctx.log.integrity import check_bodies
from eventctx.log.store import Address, EventStore
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import decode_body
from eventctx.messages.parts import Part, parts_of_result, read_parts

_HOLDERS: Final = frozenset(
    ("as_sent", "messages", "sent", "additions", "differences", "insertions")
)
"""Where an answer has messages. Elsewhere a key of that name is somebody's data."""


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


def parts_of_message(message: Any) -> list[list[Any]]:
    """The parts of a message as the page takes them; none where there is no message.

    Each is ``[kind, place, type, ids, name, failed, inner]``, without what is empty at its end. The
    page finds its value at ``place`` in the message; ``inner`` are the parts of a result.
    """
    return [_row(one) for one in read_parts(message)] if isinstance(message, dict) else []


def with_parts(value: Any) -> Any:
    """The same answer, with the ``parts`` of each ``message`` in it."""
    if isinstance(value, list):
        return [with_parts(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "message" in value:
        return {**value, "parts": parts_of_message(value["message"])}
    return {key: with_parts(one) if key in _HOLDERS else one for key, one in value.items()}


def _row(part: Part) -> list[Any]:
    inner = [_row(one) for one in parts_of_result(part)] if part.kind == "result" else []
    row = [part.kind, part.place, part.type, part.ids, part.name, part.failed, inner]
    while not row[-1]:
        row.pop()
    return row


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
