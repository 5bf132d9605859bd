"""The check of stored bodies against the digests in their records.

Every body that goes to a model, to a caller or into an answer is read by ``sound_bodies``. Only
``verify``, and a view that is shown although it is damaged, read bodies unchecked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventctx.errors import LogCorrupted
from eventctx.log.record import Body, body_digest
from eventctx.log.store import Address, EventStore


def is_sound(body: Body) -> bool:
    """Whether a body still has its digest; an erased body has nothing else and is sound."""
    if body.data is None or body.salt is None:
        return body.erased
    return body_digest(body.salt, body.data) == body.digest


async def sound_bodies(store: EventStore, stream: str, addresses: Sequence[Address]) -> list[Body]:
    """The bodies at ``addresses``, in that order, each with the digest that its record names.

    Raises LogCorrupted for a body that lost its digest, and what ``EventStore.bodies`` raises.
    """
    bodies = await store.bodies(stream, addresses)
    check(stream, zip(addresses, bodies, strict=True))
    return bodies


def check(stream: str, placed: Iterable[tuple[Address, Body]]) -> None:
    """Raise LogCorrupted for the first body that is not sound."""
    for address, body in placed:
        data, salt = body.data, body.salt
        # Written out for the usual body, since this runs for every message that is read.
        if data is not None and salt is not None and body_digest(salt, data) == body.digest:
            continue
        if not is_sound(body):
            raise _unsound(stream, address, body)


def damaged(stream: str, places: Sequence[Address], bodies: Sequence[Body]) -> LogCorrupted:
    """The error for bodies that cannot be decoded; names the first that lost its digest."""
    for address, body in zip(places, bodies, strict=True):
        if not is_sound(body):
            return _unsound(stream, address, body)
    return LogCorrupted(stream, places[0].position, "a body is no JSON")


def _unsound(stream: str, address: Address, body: Body) -> LogCorrupted:
    if body.data is None:
        found = "none: it was removed without an erasure"
    elif body.salt is None:
        found = "contents without their salt"
    else:
        found = "others: they were edited or damaged"
    problem = (
        f"body {address.index}: expected the contents with the digest in their record, found "
        f"{found}. Nothing is read from it; restore the store from a backup"
    )
    return LogCorrupted(stream, address.position, problem)
