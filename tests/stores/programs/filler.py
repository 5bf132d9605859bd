# ruff: noqa: T201
"""Appends until a file may not grow further, then gets room again. Arguments: path, bytes.

Prints the receipts of acknowledged appends, "full", what could be read, and one more receipt.
"""

import asyncio
import os
import resource
import signal
import sys

from eventctx.errors import StoreFull
from eventctx.log.record import Draft, make_body
from eventctx.log.store import ANY
from eventctx.stores.sqlite import SqliteStore


def draft() -> Draft:
    body = make_body(os.urandom(5000), b"", os.urandom)
    return Draft(os.urandom(16), "test", 1, 0, b"{}", (body,))


async def main() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = await SqliteStore.open(sys.argv[1])
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
    while True:
        acks = [store.append("s", [draft(), draft()], ANY) for _ in range(5)]
        try:
            for ack in acks:
                print((await ack).receipt)
        except StoreFull as error:
            print("full", error)
            break
    await asyncio.gather(*acks, return_exceptions=True)
    print("read", len([record async for record in store.read("s")]))
    try:
        await store.append("s", [draft() for _ in range(20)], ANY)
    except StoreFull:
        print("still full")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print("again", (await store.append("s", [draft()], ANY)).receipt)
    await store.close()


asyncio.run(main())
