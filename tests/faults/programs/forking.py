"""Forks in the middle of its work; children try to use what they inherited, and end in some way.

Arguments: path, number of forks. Prints a receipt for every acknowledged message, "refused" for
each try of a child that was a StoreUnavailable, and what else it was.
"""

import asyncio
import os
import sys
import warnings

import eventctx
from eventctx.errors import StoreUnavailable


def tell(line: object) -> None:
    os.write(1, f"{line}\n".encode())


async def use(engine: eventctx.Engine, context: eventctx.Context) -> None:
    for attempt in (
        lambda: context.add_message({"role": "user", "content": "of the child"}),
        lambda: context.get_messages_for_request(),
        lambda: engine.transcript("s"),
    ):
        try:
            await asyncio.wait_for(attempt(), 60)
            tell("used")
        except StoreUnavailable:
            tell("refused")


async def say(context: eventctx.Context, number: int, others: int) -> None:
    """Add messages, some of which nobody waited for when the process forks."""
    tell(await context.add_message({"role": "user", "content": f"message {number}"}))
    for _ in range(others):
        await context.emit(eventctx.log.events.PlanStart())
        await context.emit(eventctx.log.events.PlanEnd())


def child(engine: eventctx.Engine, context: eventctx.Context, way: int) -> None:
    asyncio.set_event_loop(None)
    asyncio.run(use(engine, context))
    if way % 2:
        os._exit(0)
    sys.exit(0)


async def begin(path: str) -> tuple[eventctx.Engine, eventctx.Context]:
    engine = await eventctx.open(path, receipts=False)
    return engine, await engine.session("s", max_tokens=3_000)


def main() -> None:
    # Python 3.12 warns of a fork next to threads, which is what is tried here.
    warnings.simplefilter("ignore", DeprecationWarning)
    loop = asyncio.new_event_loop()
    engine, context = loop.run_until_complete(begin(sys.argv[1]))
    for number in range(int(sys.argv[2])):
        loop.run_until_complete(say(context, number, number % 3))
        process = os.fork()
        if process == 0:
            child(engine, context, number)
        assert os.waitpid(process, 0)[1] == 0
    loop.run_until_complete(say(context, -1, 0))
    loop.run_until_complete(engine.close())
    loop.close()


main()
