"""Waiting for foreign code: with a time limit, and a host that may stop it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from eventctx.errors import TurnError

T = TypeVar("T")

GRACE: Final = 5.0
"""Seconds that foreign code may take to end after it was cancelled; then it is left to itself."""

POLL: Final = 0.05
"""Seconds between looks at a host's cancellation token, which does not say when it changes."""

_log = logging.getLogger("eventctx.orchestrators")
_left: set[asyncio.Task[Any]] = set()


class Stopped(asyncio.CancelledError):
    """The host asked to stop at once; recorded as a cancellation, though the task is not."""


class Stop:
    """A host's wish to stop: Amplifier's ``coordinator.cancellation``, or nobody's."""

    def __init__(self, token: Any = None) -> None:
        self._token = token

    @property
    def possible(self) -> bool:
        """Whether there is anybody who could ask."""
        return self._token is not None

    @property
    def asked(self) -> bool:
        """Nothing new is to be begun."""
        return bool(getattr(self._token, "is_cancelled", False))

    @property
    def at_once(self) -> bool:
        """What is running is to be ended."""
        return bool(getattr(self._token, "is_immediate", False))

    def began(self, call_id: str, name: str) -> None:
        """Tell the host that a tool runs."""
        _call(self._token, "register_tool_start", call_id, name)

    def ended(self, call_id: str) -> None:
        """Tell the host that it does no longer."""
        _call(self._token, "register_tool_complete", call_id)


def _call(token: Any, method: str, *arguments: str) -> None:
    known = getattr(token, method, None)
    if callable(known):
        known(*arguments)


async def within(work: Coroutine[Any, Any, T], seconds: float | None, stop: Stop) -> T:
    """What ``work`` returns. It runs in a task of its own, in the caller's scope.

    Raises TimeoutError after ``seconds``, Stopped when the host asks to stop at once, TurnError
    when the work cancels itself, and what the work raises. In each case, and when the caller is
    cancelled, the work is cancelled and waited for, for as long as ``GRACE``.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    try:
        while not task.done():
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                raise TimeoutError(f"it took longer than {seconds:g} s and was ended")
            if stop.at_once:
                raise Stopped("the host asked to stop")
            waits = [one for one in (left, POLL if stop.possible else None) if one is not None]
            await asyncio.wait({task}, timeout=min(waits, default=None))
    except BaseException:
        await _broken_off(task)
        raise
    if task.cancelled():
        raise TurnError("it was cancelled from inside: expected a result or an error")
    return task.result()


async def _broken_off(task: asyncio.Task[Any]) -> None:
    task.cancel()
    # Who holds on to a cancelled task for good would hold up the turn, and the next one.
    _left.add(task)
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=GRACE)
    if not task.done():
        _log.warning("%s does not end although it was cancelled; it is left to itself", task)


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled() and task.exception() is not None:
        _log.debug("%s raised while it was ended", task, exc_info=task.exception())
