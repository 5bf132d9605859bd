"""Appends without waiting and ends without closing. Arguments: path or URL, number of appends."""

import asyncio
import sys

from eventctx.log.record import Draft
from eventctx.stores.location import open_store


async def main() -> None:
    store = await open_store(sys.argv[1])
    for number in range(int(sys.argv[2])):
        store.append("s", [Draft(number.to_bytes(16), "test", 1, 0, b"{}")], number - 1)


asyncio.run(main())
