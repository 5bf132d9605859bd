"""Running a blocking function in a thread of its own, which nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from eventctx.log.outcomes import described


async def in_own_thread(function: Callable[[], Any], name: str) -> Any:
    """What ``function`` returns or raises, run with this task's context variables.

    Not in the event loop's pool: a function that never returns would take one of its few threads
    from the store, and a program cannot end before the pool's threads do. Raises RuntimeError for
    what would end the program, such as SystemExit.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def work() -> None:
        result, raised = None, None
        try:
            result = context.run(function)
        except BaseException as error:
            raised = error
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=work, name=f"eventctx-tool-{name}", daemon=True).start()
    result, raised = await ended
    if raised is None:
        return result
    if isinstance(raised, Exception):
        raise raised
    raise RuntimeError(f"it ended with {described(raised)}") from raised
