"""The proof that a view that was derived again is the one that was recorded."""

from __future__ import annotations

import msgspec

from eventctx.log.record import body_digest
from eventctx.log.store import Address, EventStore
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.render import addresses
from eventctx.queries.requests import RequestView


class Proof(msgspec.Struct, frozen=True):
    """The comparison of a derived view with the record: its digest, and every body in it.

    ``bodies`` counts those that were compared; ``erased`` are message numbers whose contents were
    destroyed on purpose, and ``edited`` the positions of bodies that lost their digests.
    """

    ok: bool
    digest_matches: bool
    bodies: int
    erased: tuple[int, ...]
    edited: tuple[int, ...]


async def proof_of(store: EventStore, stream: str, view: RequestView) -> Proof:
    """Check a derived view's digest, and each body in it, against the recorded digests."""
    wanted = addresses(view.entries)
    bodies = await store.bodies(stream, wanted)
    edited: set[Address] = set()
    gone: set[Address] = set()
    for address, body in zip(wanted, bodies, strict=True):
        if body.data is None or body.salt is None:
            (gone if body.erased else edited).add(address)
        elif body_digest(body.salt, body.data) != body.digest:
            edited.add(address)
    numbers = {
        entry.ref.number
        for entry in view.entries
        if isinstance(entry.ref, MessageRef)
        and Address(entry.ref.position, entry.ref.index) in gone
    }
    matches = view.digest == view.prepared.digest
    return Proof(
        matches and not edited,
        matches,
        len(wanted) - len(gone),
        tuple(sorted(numbers)),
        tuple(sorted({address.position for address in edited})),
    )
