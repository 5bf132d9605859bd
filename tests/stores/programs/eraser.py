# ruff: noqa: T201
"""Erases message 0 of session "s", or deletes the session. Arguments: path, "erase" or "delete".

Prints a line when it is ready, and one when it is done.
"""

import asyncio
import sys

import eventctx


async def main() -> None:
    async with eventctx.open(sys.argv[1], receipts=False, lock_timeout=0.2) as engine:
        await engine.recall("whatever")
        print("ready", flush=True)
        if sys.argv[2] == "erase":
            await engine.erase("s", [0])
        else:
            await engine.delete("s", forks=True)
        print("done", flush=True)


asyncio.run(main())
