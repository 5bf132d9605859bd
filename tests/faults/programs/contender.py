"""Works on a session that other processes work on, too.

Arguments: path, own name, number of messages. Prints a receipt for every acknowledged message, and
at the end how often another process was faster with a compaction.
"""

import asyncio
import os
import sys

import eventctx
from eventctx.errors import WrongExpectedVersion


def tell(line: object) -> None:
    os.write(1, f"{line}\n".encode())


async def main() -> None:
    path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    beaten = 0
    async with eventctx.open(path, receipts=False, lock_timeout=120) as engine:
        context = await engine.session("shared", max_tokens=3_000)
        for number in range(count):
            async with context.turn() as turn, turn.iteration():
                text = f"{name} {number} " + "x" * 300
                tell(await context.add_message({"role": "user", "content": text}))
                try:
                    if number % 5 == 4:
                        await context.compact()
                    await context.get_messages_for_request()
                except WrongExpectedVersion:
                    beaten += 1
    tell(f"beaten {beaten}")


asyncio.run(main())
