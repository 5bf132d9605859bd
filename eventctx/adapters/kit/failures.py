"""Failures of a host, reported in one form: what was cancelled did not fail."""

from __future__ import annotations

import asyncio

from eventctx.session.host_turns import HostReporter


def is_cancellation(error: BaseException) -> bool:
    """Whether an error says that somebody gave up, and not that something failed."""
    return isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt)


async def call_failed(turns: HostReporter, error: BaseException) -> None:
    """The model call failed, or was cancelled. Raises what the store raises."""
    await turns.model_failed(type(error).__name__, str(error), cancelled=is_cancellation(error))


async def tool_failed(
    turns: HostReporter,
    key: object,
    error: BaseException,
    *,
    answer: str | None = None,
    name: str | None = None,
    cancelled: bool = False,
) -> None:
    """The tool call failed, or was cancelled: also where the host says so by another error.

    ``key`` and ``name`` are as in ``tool_ended``; ``answer`` is the text that the host makes of the
    error for the model. Raises what the store raises.
    """
    gave_up = cancelled or is_cancellation(error)
    kind, message = type(error).__name__, str(error)
    await turns.tool_failed(key, kind, message, cancelled=gave_up, answer=answer, name=name)


async def turn_failed(turns: HostReporter, error: BaseException) -> None:
    """The turn failed, or was cancelled, and all calls in it with it. Raises as above."""
    if is_cancellation(error):
        await turns.turn_ended("cancelled")
    else:
        await turns.turn_ended("error", f"{type(error).__name__}: {error}")
