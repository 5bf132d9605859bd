"""Sessions that write until there is no space left, and on when there is some again.

Arguments: path, how space ends: a largest file size in bytes, or the path of a file that fills the
disk and is removed then. Prints receipts; "full" when every session met the full disk; "read" when
what was acknowledged could be read on the full disk; "again" and the receipts after that.
"""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

import eventctx
from eventctx.errors import StoreFull

SESSIONS = 5


def tell(line: object) -> None:
    os.write(1, f"{line}\n".encode())


async def fill(context: eventctx.Context, told: list[eventctx.Receipt]) -> None:
    """Write until this session has met the full disk three times."""
    met = 0
    while met < 3:
        try:
            async with context.turn() as turn, turn.iteration():
                message = {"role": "user", "content": "x" * 1_500}
                told.append(await context.add_message(message))
                tell(told[-1])
                await context.get_messages_for_request()
        except StoreFull:
            met += 1


async def main() -> None:
    path, limit = sys.argv[1], sys.argv[2]
    told: list[eventctx.Receipt] = []
    async with eventctx.open(path, receipts=False) as engine:
        names = [f"s{number}" for number in range(SESSIONS)]
        contexts = [await engine.session(name, max_tokens=4_000) for name in names]
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        if limit.isdigit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), unlimited[1]))
        await asyncio.gather(*(fill(context, told) for context in contexts))
        tell("full")
        for receipt in told:
            (record,) = [
                one
                async for one in engine.records(receipt.stream, receipt.position, receipt.position)
            ]
            assert record.digest == receipt.digest
        tell("read")
        if limit.isdigit():
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        else:
            Path(limit).unlink()  # noqa: ASYNC240
        tell("again")
        for context in contexts:
            tell(await context.add_message({"role": "user", "content": "after"}))
            await context.get_messages_for_request()


asyncio.run(main())
