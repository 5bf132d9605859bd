"""A hundred sessions at once in one engine, until the process is killed.

Arguments: path, number of sessions. Prints "ready", then a receipt for every acknowledged message.
Each session has its turns, its requests and its compactions; every other one those of a model that
takes its time.
"""

import asyncio
import os
import random
import sys

import eventctx


def tell(line: object) -> None:
    # One write call for each line, so that a killed process leaves whole lines.
    os.write(1, f"{line}\n".encode())


async def converse(context: eventctx.Context) -> None:
    number = len(await context.get_messages())
    while True:
        async with context.turn() as turn, turn.iteration():
            tell(await context.add_message({"role": "user", "content": f"{number} " + "x" * 400}))
            await context.get_messages_for_request()
            answer = {"role": "assistant", "content": f"{number + 1} " + "y" * 400}
            tell(await context.add_message(answer))
            number += 2


async def summarize(request: eventctx.SummaryRequest) -> str:
    await asyncio.sleep(random.uniform(0, 0.2))
    return "They talked."


async def open_one(engine: eventctx.Engine, number: int) -> eventctx.Context:
    if number % 2:
        return await engine.session(f"s{number}", max_tokens=2_000)
    return await engine.session(
        f"s{number}", max_tokens=2_000, policy="summarize", summarizer=summarize
    )


async def main() -> None:
    async with eventctx.open(sys.argv[1], receipts=False) as engine:
        contexts = [await open_one(engine, number) for number in range(int(sys.argv[2]))]
        tell("ready")
        await asyncio.gather(*map(converse, contexts))


asyncio.run(main())
