"""The parts of an append queue: its clock and listener, appends under way, drafts to send again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol

from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended
from eventctx.projections.view.request_view import ViewState


class Clock(Protocol):
    """A source of times, in UTC nanoseconds."""

    def __call__(self) -> int:
        """The time now."""
        ...


class Listener(NamedTuple):
    """The listeners to appends: ``publish`` gets every stored record, in order.

    ``appended`` gets the seconds that a caller waited for an append, and its number of records.
    ``lend`` gets the stream and the view behind the records that are published next, where the view
    is known: whoever needs it need not fold them again.
    """

    publish: Callable[[Record], None]
    appended: Callable[[float, int], None] | None = None
    lend: Callable[[str, ViewState], None] | None = None


class PendingAppend:
    """An append under way. ``records`` is set when it is on disk.

    The last ``exact`` of its drafts hold for one version alone and are dropped on a conflict. All
    others are sent again behind the records of the other process, by the append ``again``.
    ``after`` is the view behind all of them, if the caller folded it, ``next_number`` the number of
    the next message behind them.
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
        # Behind a conflict they may stand anywhere among the drafts that are sent again.
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
    """A draft that rides, or waits to be sent again, in the order in which it was first taken."""

    number: int
    draft: Draft
    origin: PendingAppend | None
