"""The parts of an append queue: its clock and listener, appends under way, drafts to send again."""

from __future__ import annotations

import atexit
import os
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended, EventStore


class Clock(Protocol):
    """A source of times, in UTC nanoseconds."""

    def __call__(self) -> int:
        """The time now."""
        ...


class Listener(NamedTuple):
    """The listeners to appends: ``publish`` gets every stored record, in order.

    ``appended`` gets the seconds that a caller waited for an append, and its number of records.
    """

    publish: Callable[[Record], None]
    appended: Callable[[float, int], None] | None = None


class PendingAppend:
    """An append under way. ``records`` is set when it is on disk.

    The last ``exact`` of its drafts hold for one version alone and are dropped on a conflict. All
    others are sent again behind the records of the other process, by the append ``again``.
    """

    __slots__ = (
        *(
            "ack",
            "again",
            "awaited",
            "drafts",
            "exact",
            "failed",
            "number",
            "records",
            "sent",
            "then",
        ),
    )

    def __init__(
        self, number: int, ack: Awaitable[Appended], drafts: tuple[Draft, ...], exact: int
    ) -> None:
        self.number = number
        self.ack = ack
        self.drafts = drafts
        self.exact = exact
        self.records: tuple[Record, ...] | None = None
        self.failed = False
        self.again: PendingAppend | None = None
        self.awaited = True
        self.then: Callable[[], None] | None = None
        self.sent = perf_counter()


class Unsent(NamedTuple):
    """A draft that rides, or waits to be sent again, in the order in which it was first taken."""

    number: int
    draft: Draft
    origin: PendingAppend | None


class Riding(Protocol):
    """A queue with drafts that ride."""

    def send(self, store: EventStore | None = None) -> None:
        """Hand them to the store and wait for nothing; only if it is ``store``, where given."""
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
    """Forget a queue, whose drafts were sent."""
    _riding.discard(queue)


def send_all(store: EventStore | None = None) -> None:
    """Let all queues of a store, or of all stores, send what rides. Waits for nothing."""
    for queue in list(_riding):
        queue.send(store)


if hasattr(os, "register_at_fork"):
    # What rides is the parent's.
    os.register_at_fork(after_in_child=_riding.clear)


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
    "context:system_prompt_set": "set its system prompt",
    "context:pre_compact": "compact it",
    "context:post_compact": "compact it",
    "context:request_prepared": "prepare a request",
    "context:request_sent": "record the request that was sent",
    "prompt:submit": "begin a turn",
}


def asked_of_mirror(drafts: Sequence[Draft]) -> str | None:
    """What drafts would do to a mirror, in words; None for those that a mirror takes."""
    for draft in reversed(drafts):
        if draft.type not in _ABOUT:
            return _ASKED.get(draft.type, f"record a {draft.type}")
    return None
