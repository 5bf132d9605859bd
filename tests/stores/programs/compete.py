"""Appends to the session ``s`` of the store at URL until COUNT appends were accepted.

Each one expects the last position that was read. Prints the positions that were won.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from eventctx.errors import WrongExpectedVersion
from eventctx.stores.location import open_store
from eventctx.testing.store_contract.drafts import make_draft


async def main(url: str, count: int) -> None:
    """Compete for positions."""
    store = await open_store(url)
    won = 0
    while won < count:
        info = await store.head("s")
        draft = make_draft("x", id=uuid4().bytes)
        try:
            done = await store.append("s", [draft], -1 if info is None else info.head)
        except WrongExpectedVersion:
            continue
        sys.stdout.write(f"{done.receipt.position}\n")
        won += 1
    await store.close()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
