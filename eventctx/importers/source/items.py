"""What a transcript parser yields: the file's story in eventctx's words, in file order.

A parser is a generator over lines. It never touches a store; ``recorder.py`` turns items into
records. Every item names the line (from 1) that it comes from, because event ids are derived from
source and line; in a file that is one JSON document, a "line" is the number of the element in its
list of messages, and 0 the document itself. What becomes no message is yielded as ``Raw``, so that
nothing is dropped silently.

Two rules make a second import of a grown file possible. What a parser yields for a line depends
on the lines up to it alone, and the lines of ``Raw`` items, and of all other items among
themselves, never go backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from eventctx.log.usage import Usage


class FileLine(NamedTuple):
    """One physical line of a file, without its line end. ``number`` counts from 1.

    ``terminated`` is false for a last line without a line end: it may be half written.
    """

    number: int
    data: bytes
    terminated: bool = True


class Session(msgspec.Struct, frozen=True):
    """Comes first. ``session_id`` is what the file calls itself; ``parent`` a linked session's."""

    line: int
    time: int | None
    session_id: str
    agent: str | None = None
    parent: str | None = None


class TurnBegan(msgspec.Struct, frozen=True):
    """The next message is a person's and begins a turn. Turns are numbered from 1 on recording."""

    line: int
    time: int | None


class TurnEnded(msgspec.Struct, frozen=True):
    """The file says that the turn is over; ``error`` names why it failed."""

    line: int
    time: int | None
    status: Literal["ok", "error", "cancelled"] = "ok"
    error: str | None = None


class MessageItem(msgspec.Struct, frozen=True):
    """A message as the model was sent it or answered it, in its own dialect.

    ``failed``: it holds the result of a tool that failed, which its dialect has no word for.
    """

    line: int
    time: int | None
    message: dict[str, Any]
    failed: bool = False


class ModelCall(msgspec.Struct, frozen=True):
    """A model call that saw all messages before this item; the next messages are its answer.

    ``output_exact`` is false where ``usage`` was written before the answer was complete.
    """

    line: int
    time: int | None
    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    context_window: int | None = None
    response_id: str | None = None
    output_exact: bool = True


class CallEnded(msgspec.Struct, frozen=True):
    """The last model call's answer is complete. What the format tells of it only now comes along.

    May come twice for one call: once when its answer is seen to be over, once with its usage.
    """

    line: int
    time: int | None
    usage: Usage | None = None
    finish_reason: str | None = None
    response_id: str | None = None


class CompactionItem(msgspec.Struct, frozen=True):
    """``messages`` replace what the model saw before; system messages stay in any case.

    Messages are named by their *place*: how many messages the file's items brought before them.
    ``kept_from``: the message in that place and all behind it stay. ``forgotten``: the messages in
    these places go and all others stay. With neither, everything goes. ``before``: ``messages``
    stand before that place; None is the start of the conversation. ``standing`` counts the file's
    compactions from 0 and names those earlier ones whose ``messages`` stay.
    """

    line: int
    time: int | None
    trigger: str | None
    messages: tuple[dict[str, Any], ...]
    kept_from: int | None = None
    forgotten: frozenset[int] | None = None
    before: int | None = None
    standing: tuple[int, ...] = ()
    tokens_before: int | None = None


class Branched(msgspec.Struct, frozen=True):
    """The conversation goes on from an earlier point: from here on it is what ``order`` lists.

    A number is the place of a message that is in the conversation now. A message is one that was
    left behind and comes back; it takes the next place.
    """

    line: int
    time: int | None
    order: tuple[int | dict[str, Any], ...]


class Linked(msgspec.Struct, frozen=True):
    """Another session belongs to this one, in the recorder's words for sessions."""

    line: int
    time: int | None
    session_id: str
    call_id: str | None = None


class Raw(msgspec.Struct, frozen=True):
    """Bytes that became no message: a line that was not understood, or the rest of one that was.

    ``kind`` is the record's kind in its own format. ``understood`` is false for kinds that the
    parser has never heard of, and for lines that are no JSON: those are counted in the summary.
    ``volatile``: what a program rewrites while the file grows (totals, exit status); a second
    import finds it changed without complaint and keeps the new version too.
    """

    line: int
    kind: str
    data: bytes
    understood: bool = True
    volatile: bool = False


class Warned(msgspec.Struct, frozen=True):
    """Something in the file was broken; the rest is usable."""

    line: int
    text: str


class Waiting(msgspec.Struct, frozen=True):
    """The end was reached while this message group may still grow; it was left for next time."""

    line: int
    reason: str


Item = (
    Session
    | TurnBegan
    | TurnEnded
    | MessageItem
    | ModelCall
    | CallEnded
    | CompactionItem
    | Branched
    | Linked
    | Raw
    | Warned
    | Waiting
)

Ended = Callable[[], bool]
"""Asked at the end of the lines: will this file grow no more?"""

Parser = Callable[[Iterable[FileLine], str, Ended], Iterator[Item]]
"""``parse(lines, name, ended)``; ``name`` is the file's name, for what it does not say itself."""


def never() -> bool:
    """The default ``Ended``: a transcript may always grow."""
    return False
