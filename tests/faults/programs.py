"""What processes of their own do in the trials: run with the name of a function and its arguments.

Each prints a receipt for every acknowledged message.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import resource
import signal
import sys
import warnings
from pathlib import Path

import eventctx
from eventctx.errors import StoreFull, StoreUnavailable, WrongExpectedVersion
from eventctx.log.events import PlanEnd, PlanStart


def tell(line: object) -> None:
    # One write call for each line, so that a killed process leaves whole lines.
    os.write(1, f"{line}\n".encode())


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def contend(path: str, name: str, count: str) -> None:
    """Work on a session that other processes work on, too.

    Prints at the end how often another process was faster with a compaction.
    """
    beaten = 0
    async with eventctx.open(path, receipts=False, lock_timeout=120) as engine:
        context = await engine.session("shared", max_tokens=3_000)
        for number in range(int(count)):
            async with context.turn() as turn, turn.iteration():
                tell(await context.add_message(user(f"{name} {number} " + "x" * 300)))
                try:
                    if number % 5 == 4:
                        await context.compact()
                    await context.get_messages_for_request()
                except WrongExpectedVersion:
                    beaten += 1
    tell(f"beaten {beaten}")


async def fill(path: str, limit: str) -> None:
    """Let sessions write until there is no space left, and on when there is some again.

    ``limit`` is a largest file size in bytes, or the path of a file that fills the disk and is
    removed then. Prints "full" when every session met the full disk; "read" when what was
    acknowledged could be read on the full disk; "again" and the receipts after that.
    """
    told: list[eventctx.Receipt] = []

    async def write(context: eventctx.Context) -> None:
        met = 0
        while met < 3:
            try:
                async with context.turn() as turn, turn.iteration():
                    told.append(await context.add_message(user("x" * 1_500)))
                    tell(told[-1])
                    await context.get_messages_for_request()
            except StoreFull:
                met += 1

    async with eventctx.open(path, receipts=False) as engine:
        contexts = [await engine.session(f"s{number}", max_tokens=4_000) for number in range(5)]
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        if limit.isdigit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), unlimited[1]))
        await asyncio.gather(*map(write, contexts))
        tell("full")
        for receipt in told:
            record = await anext(engine.records(receipt.stream, receipt.position, receipt.position))
            assert record.digest == receipt.digest
        tell("read")
        if limit.isdigit():
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        else:
            Path(limit).unlink()  # noqa: ASYNC240
        tell("again")
        for context in contexts:
            tell(await context.add_message(user("after")))
            await context.get_messages_for_request()


def fork(path: str, count: str) -> None:
    """Fork in the middle of the work; children try to use what they inherited, and end somehow.

    Prints "refused" for each try of a child that was a StoreUnavailable, and what else it was.
    """
    # Python 3.12 warns of a fork next to threads, which is what is tried here.
    warnings.simplefilter("ignore", DeprecationWarning)

    async def begin() -> tuple[eventctx.Engine, eventctx.Context]:
        engine = await eventctx.open(path, receipts=False)
        return engine, await engine.session("s", max_tokens=3_000)

    async def say(number: int, others: int) -> None:
        """Add messages, some of which nobody waited for when the process forks."""
        tell(await context.add_message(user(f"message {number}")))
        for _ in range(others):
            await context.emit(PlanStart())
            await context.emit(PlanEnd())

    async def use() -> None:
        for attempt in (
            lambda: context.add_message(user("of the child")),
            context.get_messages_for_request,
            lambda: engine.transcript("s"),
            lambda: anext(engine.store.subscribe(stream="s")),
        ):
            try:
                await asyncio.wait_for(attempt(), 60)
                tell("used")
            except StoreUnavailable:
                tell("refused")

    loop = asyncio.new_event_loop()
    engine, context = loop.run_until_complete(begin())
    for number in range(int(count)):
        loop.run_until_complete(say(number, number % 3))
        process = os.fork()
        if process == 0:
            asyncio.set_event_loop(None)
            asyncio.run(use())
            if "://" in path:  # a loop that ends in the child would leave the parent's deaf
                atexit._run_exitfuncs()
                os._exit(0)
            if number % 2:
                os._exit(0)
            sys.exit(0)
        assert os.waitpid(process, 0)[1] == 0
    loop.run_until_complete(say(-1, 0))
    loop.run_until_complete(engine.close())
    loop.close()


async def converse(path: str, count: str) -> None:
    """So many sessions at once in one engine, until the process is killed; begins with "ready".

    Each session has its turns, its requests and its compactions; every other one those of a model
    that takes its time.
    """

    async def summarize(request: eventctx.SummaryRequest) -> str:
        await asyncio.sleep(random.uniform(0, 0.2))
        return "They talked."

    async def talk(context: eventctx.Context) -> None:
        number = len(await context.get_messages())
        while True:
            async with context.turn() as turn, turn.iteration():
                tell(await context.add_message(user(f"{number} " + "x" * 400)))
                await context.get_messages_for_request()
                answer = {"role": "assistant", "content": f"{number + 1} " + "y" * 400}
                tell(await context.add_message(answer))
                number += 2

    async with eventctx.open(path, receipts=False) as engine:
        contexts = []
        for number in range(int(count)):
            by_model = {} if number % 2 else {"policy": "summarize", "summarizer": summarize}
            contexts.append(await engine.session(f"s{number}", max_tokens=2_000, **by_model))
        tell("ready")
        await asyncio.gather(*map(talk, contexts))


if __name__ == "__main__":
    begun = globals()[sys.argv[1]](*sys.argv[2:])
    if begun is not None:
        asyncio.run(begun)
