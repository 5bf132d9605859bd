# ruff: noqa: T201
"""Opens a store, says so, and at each line that it is sent appends a record. Argument: path."""

import asyncio
import sys

from eventctx.errors import EventctxError
from eventctx.log.store import ANY
from eventctx.stores.sqlite import SqliteStore
from eventctx.testing.store_contract.drafts import make_draft


async def main() -> None:
    print("opening", flush=True)
    try:
        store = await SqliteStore.open(sys.argv[1], lock_timeout=30)
    except EventctxError as error:
        print(type(error).__name__, error, flush=True)
        return
    print("opened", flush=True)
    for _ in sys.stdin:
        done = await store.append("other", [make_draft("x")], ANY)
        print(done.receipt, flush=True)
    await store.close()


asyncio.run(main())
