"""A program that appends while a page looks on: a line of its input is a round of an agent.

``python appending.py STORE``; a line is a session's name, a tab, and what a person says. After the
appends of a round it prints the time, in milliseconds since 1970, at which the first of them
was acknowledged, and how many milliseconds that one took.
"""

from __future__ import annotations

import asyncio
import sys
import time

import eventctx


async def work(store: str) -> None:
    async with eventctx.open(store) as engine:
        while line := await asyncio.to_thread(sys.stdin.readline):
            session, _, text = line.rstrip("\n").partition("\t")
            ctx = await engine.session(session, max_tokens=100_000)
            async with ctx.turn() as turn, turn.iteration():
                began = time.perf_counter()
                await ctx.add_message({"role": "user", "content": text})
                took = (time.perf_counter() - began) * 1e3
                acknowledged = time.time() * 1e3
                await ctx.get_messages_for_request()
                await ctx.add_message({"role": "assistant", "content": "Noted."})
            print(f"{acknowledged:.3f} {took:.3f}", flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
