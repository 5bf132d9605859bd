"""The limits of foreign code: a time limit, and a host that may ask a turn to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from eventctx.aio import end_within
from eventctx.errors import TurnError

T = TypeVar("T")

GRACE: Final = 5.0
"""Seconds that foreign code may take to end after it was cancelled; then it is left to itself."""


class Stopped(asyncio.CancelledError):
    """The host requested a stop at once. Recorded as a cancellation; no task is cancelled."""


class Stop:
    """A host's wish to stop, read from Amplifier's ``coordinator.cancellation``.

    Without a token nobody can request a stop. The token has no callback for a change, so running
    work reads it again and again (``within``).
    """

    def __init__(self, token: Any = None) -> None:
        self._token = token

    @property
    def possible(self) -> bool:
        """Whether anybody can request a stop."""
        return self._token is not None

    @property
    def requested(self) -> bool:
        """Whether the turn must begin nothing new."""
        return bool(getattr(self._token, "is_cancelled", False))

    @property
    def at_once(self) -> bool:
        """Whether running work must end, too."""
        return bool(getattr(self._token, "is_immediate", False))

    def check_at_once(self) -> None:
        """Raise Stopped when the host requested a stop at once."""
        if self.at_once:
            raise Stopped("the host asked to stop")

    def tool_started(self, call_id: str, name: str) -> None:
        """Tell the host that a tool runs."""
        _call(self._token, "register_tool_start", call_id, name)

    def tool_ended(self, call_id: str) -> None:
        """Tell the host that the tool runs no longer."""
        _call(self._token, "register_tool_complete", call_id)


def _call(token: Any, method: str, *arguments: str) -> None:
    known = getattr(token, method, None)
    if callable(known):
        known(*arguments)


async def within(work: Coroutine[Any, Any, T], seconds: float | None, stop: Stop) -> T:
    """Run ``work`` in a task of its own, with the caller's context variables; return its result.

    Raises TimeoutError after ``seconds``, Stopped when the host asks to stop at once, TurnError
    when the work cancels itself, and what the work raises. In the first two cases, and when the
    caller is cancelled, the work is cancelled and given ``GRACE`` seconds to end.
    """
    task = asyncio.ensure_future(work)
    await end_within(task, seconds, stop.check_at_once if stop.possible else None, grace=GRACE)
    if task.cancelled():
        raise TurnError("it was cancelled from inside: expected a result or an error")
    return task.result()
