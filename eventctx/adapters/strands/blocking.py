"""A synchronous call of an agent in the event loop of its engine, which would wait for ever.

``agent("…")`` blocks the thread that calls it, while Strands runs the agent in another one. If the
engine's loop runs in the blocked thread, nothing can be recorded, and nothing would go on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Coroutine
from typing import Any, Final

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting

_WAITS: Final = ("strands._async", "run_async")
"""The module and the function in which Strands blocks."""


def loop_thread_of(engine: object) -> int | None:
    """The thread of an engine's loop, which is the present one; None where it is the engine's."""
    return threading.get_ident() if isinstance(engine, Engine) else None


def expect_free_loop(thread: int, work: Coroutine[Any, Any, Any]) -> None:
    """Raise InvalidSetting, and drop ``work``, if a synchronous call blocks this thread."""
    if thread == threading.get_ident():
        return
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == _WAITS:
            work.close()
            raise InvalidSetting(
                "expected an asynchronous call in the event loop of the engine, found a "
                'synchronous one: await agent.invoke_async("…"), or give EventctxAgentPlugin a '
                "store's path"
            )
        frame = frame.f_back
