"""Drafts with bodies, and the check that every chain of records must pass."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import AsyncIterator, Iterable
from typing import Any, TypeVar

from eventctx.log.record import GENESIS, Draft, Record, body_digest, chain_digest, make_body

T = TypeVar("T")

_counter = itertools.count(1)


def make_draft(*texts: str | bytes, seed: str | None = None, **fields: Any) -> Draft:
    """A draft with one body per text; the same ``seed`` gives the same event id."""
    number = next(_counter)
    event_id = hashlib.md5((seed or f"draft {number}").encode(), usedforsecurity=False).digest()
    bodies = tuple(
        make_body(text.encode() if isinstance(text, str) else text, b"facts", os.urandom)
        for text in texts
    )
    defaults: dict[str, Any] = {
        "id": event_id,
        "type": "context:message_added",
        "version": 1,
        "time": 1_700_000_000_000_000_000 + number,
        "payload": b'{"event":"context:message_added"}',
        "bodies": bodies,
    }
    return Draft(**{**defaults, **fields})


def check_chain(records: Iterable[Record]) -> None:
    """Assert that positions have no gaps from 0 and every digest follows from the one before."""
    digest = GENESIS
    for position, record in enumerate(records):
        assert record.position == position
        assert chain_digest(digest, position, record) == record.digest
        for body in record.bodies:
            if body.data is not None and body.salt is not None:
                assert body_digest(body.salt, body.data) == body.digest
        digest = record.digest


async def gather(found: AsyncIterator[T]) -> list[T]:
    """All that an asynchronous iterator gives, such as the records of a read."""
    return [one async for one in found]
