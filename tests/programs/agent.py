"""An agent that never stops: adds messages to a session and prints a receipt for each.

``python agent.py STORE [LARGEST_FILE_BYTES]``; with a limit it runs into a full disk, prints the
error, lifts the limit and adds one more message.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys

import eventctx
from eventctx.errors import StoreFull


async def work(store: str, largest: int | None) -> None:
    async with eventctx.open(store) as engine:
        ctx = await engine.session("s", max_tokens=3_000)
        number = len(await ctx.get_messages())
        if largest is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        full = False
        while not full:
            try:
                async with ctx.turn() as turn, turn.iteration():
                    message = {"role": "user", "content": f"{number} " + "x" * 700}
                    receipt = await ctx.add_message(message)
                    number += 1
                    print(receipt, flush=True)
                    await ctx.get_messages_for_request()
            except StoreFull as error:
                print("FULL", error, flush=True)
                full = True
        infinity = resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (infinity, infinity))
        print(await ctx.add_message({"role": "user", "content": "after"}), flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None))
