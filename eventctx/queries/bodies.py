"""The check of stored bodies against the digests in their records."""

from __future__ import annotations

from collections.abc import Sequence

from eventctx.errors import LogCorrupted
from eventctx.log.record import Body, body_digest
from eventctx.log.store import Address


def is_sound(body: Body) -> bool:
    """Whether a body still has its digest; an erased body has nothing else and is sound."""
    if body.data is None or body.salt is None:
        return body.erased
    return body_digest(body.salt, body.data) == body.digest


def damaged(stream: str, places: Sequence[Address], bodies: Sequence[Body]) -> LogCorrupted:
    """The error for bodies that cannot be decoded; names the first that lost its digest."""
    for address, body in zip(places, bodies, strict=True):
        if not is_sound(body):
            return LogCorrupted(stream, address.position, f"body {address.index} was edited")
    return LogCorrupted(stream, places[0].position, "a body is no JSON")
