"""An agent whose model calls two tools at once: one answers at once, one never does.

``python two_tools.py STORE`` prints "ready" when the quick one's end is on disk, and waits
for a line on its standard input. Killed before that line, it leaves the turn and the slow call
open. After the line, the slow tool answers too, the results are added, and the turn ends.
"""

from __future__ import annotations

import asyncio
import sys

import eventctx

CALLS = [
    {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
    for name in ("quick", "slow")
]


async def work(store: str) -> None:
    async with eventctx.open(store) as engine:
        ctx = await engine.session("s")
        async with ctx.turn("first") as turn, turn.iteration() as cycle:
            await ctx.add_message({"role": "user", "content": "Use both."})
            await ctx.get_messages_for_request()
            async with cycle.provider_call("m", "p"):
                pass
            call = {"role": "assistant", "content": None, "tool_calls": CALLS}
            await ctx.add_message(call)
            results: dict[str, str] = {}
            quick_ended = asyncio.Event()

            async def quick() -> None:
                async with cycle.tool_call("quick", "quick") as block:
                    block.answered("The quick answer.")
                results["quick"] = "The quick answer."
                quick_ended.set()

            async def slow() -> None:
                async with cycle.tool_call("slow", "slow"):
                    await quick_ended.wait()
                    await ctx.close()  # all that was emitted is on disk now
                    print("ready", flush=True)
                    await asyncio.to_thread(sys.stdin.readline)
                results["slow"] = "The slow answer."

            await asyncio.gather(slow(), quick())
            for name, text in results.items():
                await ctx.add_message({"role": "tool", "tool_call_id": name, "content": text})
        print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
