"""A session of the real kernel that kills itself in one of two tools, after the other has answered.

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
from eventctx.testing import Reply, ScriptedAmplifierProvider, ScriptedTool
from tests.amplifier.hosts import session


async def until_the_other_tool_ended(store: str) -> None:
    # Only the store says what is on disk; no event of the host does.
    async with eventctx.open(store, receipts=False) as engine:
        while "tool:post" not in [one.type async for one in engine.records("session-1")]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def main(store: str, loop: str) -> None:
    async def die(given: Any) -> str:
        await until_the_other_tool_ended(store)
        os.kill(os.getpid(), signal.SIGKILL)
        return "unreached"

    provider = ScriptedAmplifierProvider(
        Reply(calls=[("read", {"path": "a"}), ("die", {"of": "b"})]), "unreached"
    )
    tools = [
        ScriptedTool("read", "the text of read", amplifier=True),
        ScriptedTool("die", die, amplifier=True),
    ]
    async with session(provider, *tools, loop=loop, config={"store": store}) as host:
        await host.execute("Read and die.")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
