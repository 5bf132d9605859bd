# ruff: noqa: T201
"""Appends records to a shared stream and to an own one, next to other processes.

Arguments: path or URL, own name, number of appends to each. Prints the positions won in the shared
stream, and the longest single append in milliseconds, as two lines.
"""

import asyncio
import hashlib
import sys
import time

from eventctx.errors import WrongExpectedVersion
from eventctx.log.record import Draft
from eventctx.stores.location import open_store


def draft(*parts: object) -> Draft:
    event_id = hashlib.sha256(repr(parts).encode()).digest()[:16]
    return Draft(event_id, "test", 1, time.time_ns(), b"{}")


async def main() -> None:
    path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = await open_store(path)
    won, longest = [], 0.0
    for number in range(count):
        begun = time.perf_counter()
        await store.append(name, [draft(name, number), draft(name, number, "b")], 2 * number - 1)
        longest = max(longest, time.perf_counter() - begun)
        expected = -1
        while True:
            try:
                done = await store.append("shared", [draft(name, "shared", number)], expected)
                break
            except WrongExpectedVersion as conflict:
                expected = conflict.actual
        won.append(done.receipt.position)
    await store.close()
    print(*won)
    print(int(longest * 1000))


asyncio.run(main())
