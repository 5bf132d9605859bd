"""The parts of an append queue: appends under way, deferred drafts, and the rules of mirrors.

Invariant: a queue with deferred drafts is registered here until they are sent. So they reach the
store also when every other reference to the session is gone, or the interpreter ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from eventctx.errors import EventctxError
from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended, EventStore
from eventctx.projections.view.request_view import ViewState


class Clock(Protocol):
    """A source of times, in UTC nanoseconds."""

    def __call__(self) -> int:
        """The time now."""
        ...


class Listener(NamedTuple):
    """The listeners to appends: ``publish`` gets every stored record, in order.

    ``appended`` gets the seconds that a caller waited for an append, and its number of records.
    ``lend`` gets the stream and the view after the records that are published next, where the view
    is known. It spares a listener the fold.
    """

    publish: Callable[[Record], None]
    appended: Callable[[float, int], None] | None = None
    lend: Callable[[str, ViewState], None] | None = None


class PendingAppend:
    """An append under way. ``records`` is set when it is on disk.

    The last ``exact`` of its drafts hold for one version alone and are dropped on a conflict. The
    append ``again`` sends all others after the records of the other process. ``after`` is the view
    after all drafts, if the caller folded it, ``next_number`` the number of the next message.
    """

    __slots__ = (
        "ack",
        "after",
        "again",
        "awaited",
        "drafts",
        "exact",
        "failed",
        "next_number",
        "number",
        "records",
        "submitted",
        "then",
    )

    def __init__(
        self,
        number: int,
        ack: Awaitable[Appended],
        drafts: tuple[Draft, ...],
        exact: int,
        after: ViewState | None,
        next_number: int,
    ) -> None:
        self.number = number
        self.ack = ack
        self.drafts = drafts
        self.exact = exact
        self.after = after
        self.next_number = next_number
        self.records: tuple[Record, ...] | None = None
        self.failed = False
        self.again: PendingAppend | None = None
        self.awaited = True
        self.then: Callable[[], None] | None = None
        self.submitted = perf_counter()

    def message(self, draft: Draft) -> tuple[Record, int]:
        """The record of a message that was stored with this append, and the message's number."""
        return self.messages((draft,))[0]

    def messages(self, drafts: Sequence[Draft]) -> list[tuple[Record, int]]:
        """As ``message``, of several that were stored with this append, in their order."""
        records, number = self.records or (), self.next_number
        found: list[tuple[Record, int]] = []
        # After a conflict they may be anywhere among the drafts that are sent again.
        for place in range(len(records) - 1, -1, -1):
            number -= numbers_given(self.drafts[place])
            if records[place].id == drafts[-1 - len(found)].id:
                found.append((records[place], number))
                if len(found) == len(drafts):
                    return found[::-1]
        raise LookupError("expected drafts of this append, in their order")


def numbers_given(draft: Draft) -> int:
    """How many messages get their numbers by a draft."""
    if draft.type == "context:message_added":
        return 1
    return len(draft.bodies) if draft.type == "context:messages_set" else 0


class Unsent(NamedTuple):
    """A draft that is deferred, or waits to be sent again; ``number`` keeps the first order."""

    number: int
    draft: Draft
    origin: PendingAppend | None


_ABOUT: Final = frozenset(("session:linked", "session:signed"))
"""Records about a session that change neither its conversation nor its turns."""

_ASKED: Final = {
    "context:message_added": "add a message",
    "context:messages_set": "set its messages",
    "context:set_ignored": "set its messages",
    "context:cleared": "clear it",
    "context:restored": "restore messages",
    "context:pinned": "pin messages",
    "context:unpinned": "unpin messages",
    "context:instruction_withdrawn": "take back an instruction",
    "context:system_prompt_set": "set its system prompt",
    "context:pre_compact": "compact it",
    "context:post_compact": "compact it",
    "context:request_prepared": "prepare a request",
    "context:request_sent": "record the request that was sent",
    "prompt:submit": "begin a turn",
}


def asked_of_mirror(drafts: Sequence[Draft]) -> str | None:
    """The change that drafts ask of a mirror, in words; None for drafts that a mirror takes."""
    for draft in reversed(drafts):
        if draft.type not in _ABOUT:
            return _ASKED.get(draft.type, f"record a {draft.type}")
    return None


MAX_DEFERRED: Final = 64
"""Activity events that may be deferred; the next one takes them all to the store."""

FLUSHING: Final = frozenset(("prompt:complete", "session:end"))
"""Activity events that take deferred ones to the store, since no append is to be expected soon."""


class DeferringQueue(Protocol):
    """A queue with deferred drafts."""

    def appends_to(self, store: EventStore, stream: str | None = None) -> bool:
        """Whether it appends to ``store``, and to ``stream``, where given."""
        ...

    def send(self) -> None:
        """Hand them to the store and wait for nothing."""
        ...

    async def flush(self) -> None:
        """Hand them to the store and wait for the disk. Raises what the store raises."""
        ...


_deferring: set[DeferringQueue] = set()
"""Held until their drafts are sent, also after all others have dropped the session."""


def note_deferring(queue: DeferringQueue) -> None:
    """Register a queue, which sends its drafts when its engine is dropped or Python ends."""
    _deferring.add(queue)
    # Registered anew, so that it runs before the hook of any store that was loaded meanwhile.
    atexit.unregister(send_all)
    atexit.register(send_all)


def forget_deferring(queue: DeferringQueue) -> None:
    """Forget a queue whose drafts were sent, or are given up."""
    _deferring.discard(queue)


def deferring_to(store: EventStore, stream: str | None = None) -> list[DeferringQueue]:
    """The queues with deferred drafts for a store, or for one stream of it.

    Also those of closed sessions that a holder still uses.
    """
    return [queue for queue in list(_deferring) if queue.appends_to(store, stream)]


async def flush_all(store: EventStore) -> None:
    """Write deferred drafts to a store whose engine is gone, and drop those that fail."""
    for queue in deferring_to(store):
        with suppress(EventctxError):
            await queue.flush()
        forget_deferring(queue)


def send_all() -> None:
    """Let all queues send their drafts, as the interpreter ends. Waits for nothing."""
    for queue in list(_deferring):
        queue.send()
        forget_deferring(queue)  # also one that cannot send: there is no later time


if hasattr(os, "register_at_fork"):
    # Deferred drafts are the parent's to send.
    os.register_at_fork(after_in_child=_deferring.clear)


IDLE_SECONDS: Final = 0.05
"""Seconds that a deferred event waits at most for an append to go with."""


class Idle:
    """Calls ``timeout`` in a loop, so many seconds after it was last started."""

    def __init__(self, timeout: Callable[[], None], seconds: float = IDLE_SECONDS) -> None:
        self._timeout = timeout
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._since = 0.0

    def start(self) -> None:
        """Count from now on."""
        self._since = perf_counter()

    def set(
        self, seconds: float | None = None, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Set the timeout in this thread's loop, unless it is set in a running loop already.

        In ``loop``, where given, which may run in another thread.
        """
        if self._loop is not None and self._loop.is_running():
            return
        seconds = self._seconds if seconds is None else seconds
        with suppress(RuntimeError):  # no loop, or a closed one: the next append takes the drafts
            if loop is None:
                self._loop = asyncio.get_running_loop()
                self._loop.call_later(seconds, self._end)
            else:
                self._loop = loop
                loop.call_soon_threadsafe(loop.call_later, seconds, self._end)

    def _end(self) -> None:
        self._loop = None
        early = self._since + self._seconds - perf_counter()
        if early > 0:
            self.set(early)  # its drafts went with another append
        else:
            self._timeout()
