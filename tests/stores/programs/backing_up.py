# ruff: noqa: T201
"""Backs a store up to a file that may not grow past a size. Arguments: store, target, bytes."""

import asyncio
import resource
import signal
import sys

from eventctx.errors import StoreFull
from eventctx.stores.sqlite import SqliteStore


async def main() -> None:
    store = await SqliteStore.open(sys.argv[1])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), hard))
    try:
        await store.backup(sys.argv[2])
    except StoreFull as error:
        print("full", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.backup(sys.argv[2])
    print("backed up")
    await store.close()


asyncio.run(main())
