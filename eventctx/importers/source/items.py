"""The items that a transcript's parser yields, in file order, the same for every format.

A parser is a generator over lines. It never touches a store; ``recorder.py`` turns items into
records. Every item names its line (from 1), because event ids are derived from source and line. In
a file that is one JSON document, a "line" is the number of an element in the list of messages, and
0 is the document itself. A part of a file that becomes no message is yielded as ``Raw``, so that
nothing is dropped silently.

Two rules make a second import of a grown file possible. The items of a line depend only on the
lines up to it. And line numbers never go backwards, neither among the ``Raw`` items nor among all
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from eventctx.log.events import ContentKind, Status
from eventctx.log.usage import Usage
from eventctx.log.wire import CacheMark
from eventctx.messages.facts import Facts


class FileLine(NamedTuple):
    """One physical line of a file, without its line end. ``number`` counts from 1.

    ``terminated`` is false for a last line without a line end: it may be half written. ``nul``
    counts the NUL bytes that were left out before it: a crash leaves them in place of what was
    still to be written, and what comes after them is a line of its own with the same number.
    """

    number: int
    data: bytes
    terminated: bool = True
    nul: int = 0


class Session(msgspec.Struct, frozen=True):
    """The first item. ``session_id`` is the file's own id, ``parent`` that of a linked session.

    ``link`` says what this one is to its parent: an agent that it started, or a branch of it.
    """

    line: int
    time: int | None
    session_id: str
    agent: str | None = None
    parent: str | None = None
    link: Literal["subagent", "branch"] = "subagent"


class TurnBegan(msgspec.Struct, frozen=True):
    """The next message is a person's and begins a turn. The recorder numbers turns from 1."""

    line: int
    time: int | None


class TurnEnded(msgspec.Struct, frozen=True):
    """The end of the turn, according to the file; ``error`` is the reason of a failure."""

    line: int
    time: int | None
    status: Status = "ok"
    error: str | None = None


class TurnMeasured(msgspec.Struct, frozen=True):
    """The duration of the turn so far, as the file's program measured it, in nanoseconds."""

    line: int
    time: int | None
    duration: int


class MessageItem(msgspec.Struct, frozen=True):
    """A message as it was sent to the model or came from it, in its own dialect.

    ``failed`` marks the result of a failed tool in a dialect that has no field for that.
    ``by_harness`` is set where the file says outside the message that a harness wrote it,
    ``observation`` where it is the result of the action in the model's text before it. The recorder
    tells observations by their form, too. ``facts`` are those that ``read_facts`` finds in the
    message alone, ``data`` the encoding of one that was decoded from JSON, if the parser made them.
    """

    line: int
    time: int | None
    message: dict[str, Any]
    failed: bool = False
    by_harness: bool = False
    observation: bool = False
    facts: Facts | None = None
    data: bytes | None = None


class ModelCall(msgspec.Struct, frozen=True):
    """A model call that saw all messages before this item; the next messages are its answer.

    ``output_exact`` is false where ``usage`` was written before the answer was complete. ``sent``
    is the id of the ``RecordedRequest`` that it answers, where the file holds it.
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
    sent: str | None = None


class RecordedContent(msgspec.Struct, frozen=True):
    """A content of requests as they were sent, which the file holds once under the name ``key``.

    ``digest`` is that of ``messages/encoding.py``; the parser has compared it with the file's own.
    """

    line: int
    time: int | None
    kind: ContentKind
    key: str
    digest: bytes
    value: Any


class RecordedRequest(msgspec.Struct, frozen=True):
    """A request as it was sent: the first ``keep`` messages of request ``base``, then ``tail``.

    ``tail`` are digests of messages: of a ``RecordedContent`` or an answer in the file. ``shape``
    is the key of its system prompt and tools, ``parameters`` that of all its other fields. ``rule``
    is one of ``log.wire.APIS`` for a request that was seen on its way.
    """

    line: int
    time: int | None
    id: str
    tail: tuple[bytes, ...]
    base: str | None = None
    keep: int = 0
    shape: str | None = None
    parameters: str | None = None
    cache_control: tuple[CacheMark, ...] = ()
    rule: str | None = None


class CallEnded(msgspec.Struct, frozen=True):
    """The last model call's answer is complete. Facts that the format gives at the end come along.

    It may come twice for one call: first at the end of the answer, then with the usage.
    """

    line: int
    time: int | None
    usage: Usage | None = None
    finish_reason: str | None = None
    response_id: str | None = None


class CompactionItem(msgspec.Struct, frozen=True):
    """``messages`` replace messages that the model saw before; system messages always stay.

    A message is named by its *place*, the number of messages among the file's items before it. With
    ``kept_from``, the message in that place and all later ones stay. With ``forgotten``, the
    messages in these places go and all others stay. With neither, everything goes. ``messages`` go
    before the place ``before``; None is the start of the conversation. ``parts`` says for each of
    them where it goes instead, and the places of the messages that it replaces; None are all
    others that went. ``standing`` names earlier compactions of the file, counted from 0, whose
    ``messages`` stay. ``shortened`` are messages that stay, each with its place and what is sent of
    it from here on. ``resent`` is a guess at the tokens that the program sends with
    ``messages`` and that are not in the file. ``took`` is what the program measured, in
    nanoseconds. ``asked`` is the call that wrote ``messages``, where it was sent something else
    than the conversation; where it was sent that, it is a ``ModelCall`` of its own.
    """

    line: int
    time: int | None
    trigger: str | None
    messages: tuple[dict[str, Any], ...]
    kept_from: int | None = None
    forgotten: frozenset[int] | None = None
    before: int | None = None
    parts: tuple[tuple[int | None, tuple[int, ...] | None], ...] = ()
    standing: tuple[int, ...] = ()
    shortened: tuple[tuple[int, dict[str, Any]], ...] = ()
    tokens_before: int | None = None
    resent: int = 0
    took: int | None = None
    asked: ModelCall | None = None


class Undone(msgspec.Struct, frozen=True):
    """The messages in these places leave the conversation: a person, or the program, undid them.

    ``compactions`` are those of the file, counted from 0, that are undone with them: what these had
    taken out returns, and what they had put in goes.
    """

    line: int
    time: int | None
    places: frozenset[int]
    compactions: frozenset[int] = frozenset()


class ResultsCleared(msgspec.Struct, frozen=True):
    """The messages in these places are sent as ``messages`` from here on, one for each place.

    ``trigger`` and ``tokens_before`` as in ``CompactionItem``. ``inferred``: the file counts what
    was cleared, and does not name it.
    """

    line: int
    time: int | None
    trigger: str
    places: tuple[int, ...]
    messages: tuple[dict[str, Any], ...]
    tokens_before: int | None = None
    inferred: bool = False


class ThinkingCleared(msgspec.Struct, frozen=True):
    """The thinking in the messages in these places is not sent from here on.

    ``trigger`` and ``tokens_before`` as in ``CompactionItem``.
    """

    line: int
    time: int | None
    trigger: str
    places: frozenset[int]
    tokens_before: int | None = None


class Branched(msgspec.Struct, frozen=True):
    """The conversation goes back to an earlier point; from here on it is the list ``order``.

    A number is the place of a message that is in the conversation now. A dict is a message that
    had left the conversation and returns; it takes the next place. ``harness`` are the places in
    ``order`` of returning messages that a harness wrote.
    """

    line: int
    time: int | None
    order: tuple[int | dict[str, Any], ...]
    harness: frozenset[int] = frozenset()


class Linked(msgspec.Struct, frozen=True):
    """Another session that belongs to this one, by the recorder's name for it."""

    line: int
    time: int | None
    session_id: str
    call_id: str | None = None


class Raw(msgspec.Struct, frozen=True):
    """Bytes that became no message: a line that was not understood, or the rest of another line.

    ``kind`` is the record's kind in its own format. ``understood`` is false for unknown kinds and
    for lines that are no JSON; the summary counts these. ``volatile`` marks a part that a program
    rewrites while the file grows (totals, exit status). A second import accepts a change of it and
    keeps the new version, too.
    """

    line: int
    kind: str
    data: bytes
    understood: bool = True
    volatile: bool = False


class Warned(msgspec.Struct, frozen=True):
    """A warning about a broken part of the file; the rest is usable."""

    line: int
    text: str


class Waiting(msgspec.Struct, frozen=True):
    """The message group at the end may still grow, so it is left for the next import."""

    line: int
    reason: str


class Paused(msgspec.Struct, frozen=True):
    """The present end of a file that is being written; the next item may come later."""

    line: int


Item = (
    Session
    | TurnBegan
    | TurnEnded
    | TurnMeasured
    | MessageItem
    | ModelCall
    | RecordedContent
    | RecordedRequest
    | CallEnded
    | CompactionItem
    | Undone
    | ResultsCleared
    | ThinkingCleared
    | Branched
    | Linked
    | Raw
    | Warned
    | Waiting
    | Paused
)

Ended = Callable[[], bool]
"""Returns, at the end of the lines, whether the file will grow no more."""

Parser = Callable[[Iterable[FileLine], str, Ended], Iterator[Item]]
"""``parse(lines, name, ended)``; ``name`` is the file's name, for a file without its own id."""


def never() -> bool:
    """The default ``Ended``: a transcript may always grow."""
    return False
