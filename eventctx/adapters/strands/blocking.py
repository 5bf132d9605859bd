"""A synchronous call of an agent in the event loop of its engine, which would wait for ever.

``agent("…")`` blocks the thread that calls it, while Strands runs the agent in another one. If the
engine's loop runs in the blocked thread, nothing can be recorded, and nothing would go on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final

from eventctx.errors import InvalidSetting

_WAITS: Final = ("strands._async", "run_async")
"""The module and the function in which Strands blocks."""

_TRIES: Final = 1_000


class BlockableThread:
    """The present thread, in which the loop of an engine runs."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        *_, self._lowest = _stack(sys._getframe())

    def expect_free(self, work: Coroutine[Any, Any, Any]) -> None:
        """Raise InvalidSetting, and drop ``work``, if a synchronous call blocks this thread."""
        if self._thread != threading.get_ident() and self._is_blocked():
            work.close()
            raise InvalidSetting(
                "expected an asynchronous call in the event loop of the engine, found a "
                'synchronous one: await agent.invoke_async("…"), or give the plugin a store\'s path'
            )

    def _is_blocked(self) -> bool:
        for _ in range(_TRIES):
            stack = _stack(sys._current_frames().get(self._thread))
            if any((one.f_globals.get("__name__"), one.f_code.co_name) == _WAITS for one in stack):
                return True
            if not stack or stack[-1] is self._lowest:
                break
            # The thread left its highest frame in the meantime, which so lost those below it.
        return False


def _stack(frame: FrameType | None) -> list[FrameType]:
    """A frame and those below it."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found
