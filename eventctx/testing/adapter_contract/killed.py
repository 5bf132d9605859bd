"""``python -m eventctx.testing.adapter_contract.killed MODULE CLASS FOLDER``: waits in a tool.

It prints "in the tool" when the tool runs. The contract kills it then.
"""

from __future__ import annotations

import asyncio
import operator
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing.adapter_contract.running import running, store_in
from eventctx.testing.driving import ScriptedAgent
from eventctx.testing.script import Reply


async def wait(reason: str) -> str:
    """Wait for ever."""
    sys.stdout.write("in the tool\n")
    sys.stdout.flush()
    await asyncio.Event().wait()
    return "never"


async def _work(driver: Any, folder: Path) -> None:
    call = ToolRequest("call_w", "wait", {"reason": "until-killed."})
    agent = ScriptedAgent([Reply(calls=[call])], [wait])
    async with running(driver, folder, agent, store_in(folder)) as run:
        await run.driver.ask("wait-then.")


if __name__ == "__main__":
    module, name, folder = sys.argv[1:]
    driver = operator.attrgetter(name)(import_module(module))
    asyncio.run(_work(driver, Path(folder)))
