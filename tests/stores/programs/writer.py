"""Appends to a stream until it is killed; prints a line for every acknowledged append.

Arguments: path, stream, number of concurrent tasks (each with a stream of its own when above 1).
"""

import asyncio
import hashlib
import os
import sys

from eventctx.log.record import Draft, make_body
from eventctx.stores.sqlite import SqliteStore


def drafts(stream: str, first: int) -> list[Draft]:
    """Three records, of one to two bodies; an id follows from the stream and the position."""
    return [
        Draft(
            hashlib.sha256(f"{stream} {position}".encode()).digest()[:16],
            "context:message_added",
            1,
            position,
            b"{}",
            tuple(make_body(os.urandom(700), b"f", os.urandom) for _ in range(1 + position % 2)),
        )
        for position in range(first, first + 3)
    ]


async def write(store: SqliteStore, stream: str) -> None:
    head = await store.head(stream)
    last = -1 if head is None else head.head
    while True:
        done = await store.append(stream, drafts(stream, last + 1), last)
        last = done.receipt.position
        # One write call for each line, so that a killed process leaves whole lines.
        os.write(1, f"{done.receipt}\n".encode())


async def main() -> None:
    store = await SqliteStore.open(sys.argv[1])
    names = [f"{sys.argv[2]}{n}" for n in range(int(sys.argv[3]))]
    await asyncio.gather(*(write(store, name) for name in names))


asyncio.run(main())
