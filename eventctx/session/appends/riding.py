"""What rides: how much of it may, and its way to the store when nobody waits."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from typing import Final, Protocol

from eventctx.errors import EventctxError
from eventctx.log.store import EventStore

MAX_RIDING: Final = 64
"""Activity events that may ride; the next one takes them all to the store."""

GOES: Final = frozenset(("prompt:complete", "session:end"))
"""Activity events that take to the store what rides, as nothing is to be expected soon."""


class Riding(Protocol):
    """A queue with drafts that ride."""

    def appends_to(self, store: EventStore, stream: str | None = None) -> bool:
        """Whether it appends to ``store``, and to ``stream``, where given."""
        ...

    def send(self) -> None:
        """Hand them to the store and wait for nothing."""
        ...

    async def flushed(self) -> None:
        """Hand them to the store and wait for the disk. Raises what the store raises."""
        ...


_riding: set[Riding] = set()
"""Held until their drafts are sent, also where everybody else has dropped the session."""


def rides(queue: Riding) -> None:
    """Have a queue send what rides when its engine is dropped, or the interpreter ends."""
    _riding.add(queue)
    # Registered anew, so that it runs before the hook of any store that was loaded meanwhile.
    atexit.unregister(send_all)
    atexit.register(send_all)


def rides_no_more(queue: Riding) -> None:
    """Forget a queue: its drafts were sent, or nobody will try it again."""
    _riding.discard(queue)


def riding_to(store: EventStore, stream: str | None = None) -> list[Riding]:
    """The queues with drafts that ride to a store, or to one stream of it.

    Also those of sessions that were closed, and are still used by somebody who held them.
    """
    return [queue for queue in list(_riding) if queue.appends_to(store, stream)]


async def flush_all(store: EventStore) -> None:
    """Write what rides to a store whose engine is gone; what cannot be written now is dropped."""
    for queue in riding_to(store):
        with suppress(EventctxError):
            await queue.flushed()
        rides_no_more(queue)


def send_all() -> None:
    """Let all queues send what rides, as the interpreter ends. Waits for nothing."""
    for queue in list(_riding):
        queue.send()
        rides_no_more(queue)  # also one that cannot send now: there is no later


if hasattr(os, "register_at_fork"):
    # What rides is the parent's.
    os.register_at_fork(after_in_child=_riding.clear)
