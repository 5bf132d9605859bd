"""A session of the real kernel that kills itself in its second turn, in one of two tools.

The other tool has answered then.

``python host_with_two_tools.py STORE LOOP``; the loop is one of ``tests.amplifier.hosts.LOOPS``, or
the id of a module that is installed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import eventctx
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.hosts import session, tool


async def main(store: str, loop: str) -> None:
    async def die(given: Any) -> str:
        # Only the store says what is on disk; no event of the host does.
        async with eventctx.open(store, receipts=False) as engine:
            while "tool:post" not in [one.type async for one in engine.records("session-1")]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
        return "unreached"

    both = Reply(calls=[("read", {"path": "a"}), ("die", {"of": "b"})])
    tools = tool("read", "the text of read"), tool("die", die)
    provider = ScriptedAmplifierProvider("Hello.", both, "unreached")
    async with session(provider, *tools, loop=loop, store=store) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "Be brief."})
        await host.execute("Hello?")
        await host.execute("Die.")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
