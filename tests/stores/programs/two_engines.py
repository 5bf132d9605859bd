# ruff: noqa: T201
"""Appends messages through one engine, until it is killed, while a second one opens and closes.

Argument: path. Prints the receipt of each acknowledged message, and "opened" once the second engine
was open.
"""

import asyncio
import itertools
import sys

import eventctx


async def main() -> None:
    async with eventctx.open(sys.argv[1]) as engine:
        context = await engine.session("kept")
        for number in itertools.count():
            receipt = await context.add_message({"role": "user", "content": f"message {number}"})
            print(receipt, flush=True)
            if number == 20:
                async with eventctx.open(sys.argv[1]) as second:
                    await second.sessions()
                print("opened", flush=True)


asyncio.run(main())
