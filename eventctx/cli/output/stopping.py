"""Commands that run until they are stopped, and end cleanly then."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or SIGTERM sets. A second Ctrl-C stops the program at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    # Where the loop takes no handlers (Windows), Ctrl-C cancels, and there is no total.
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, stopped)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        yield stop
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)
