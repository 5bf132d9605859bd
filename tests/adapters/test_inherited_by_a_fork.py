"""An adapter in a process that was forked off: the event loop of its engine does not run there."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Callable

import pytest

from eventctx.adapters.kit.loops import engine_in_loop, run_in, wait_in
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.stores.memory import MemoryStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


async def work() -> None:
    """Do nothing."""


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except InvalidSetting as error:
        return "inherited by a fork" in str(error)
    return False


async def test_a_forked_process_is_told_so_and_does_not_wait_for_ever() -> None:
    _, loop = engine_in_loop(Engine(MemoryStore()), "test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork next to threads
        child = os.fork()
    if child == 0:
        signal.alarm(60)  # it is ended, should it wait for ever
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        told = [
            refused(lambda: asyncio.run(run_in(loop, work()))),
            refused(lambda: wait_in(loop, work())),
        ]
        os._exit(0 if all(told) else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    await asyncio.to_thread(lambda: asyncio.run(run_in(loop, work())))
