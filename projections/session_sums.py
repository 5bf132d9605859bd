"""The sums of a session that a list of sessions shows: counts, times, and where its texts lie.

They hold no text of a message or of an imported file, so they can be kept outside the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from eventctx.log.codec import decode_known
from eventctx.log.events import ABOUT_A_SESSION, UsageReported, takes_back
from eventctx.log.record import Record
from eventctx.log.store import Address
from eventctx.messages.facts import decode_facts
from eventctx.projections.figures import of_request

VERSION: Final = 4
"""Of this fold: sums of another version are made again."""

TITLES: Final = ("custom-title", "event_msg/thread_name_updated", "session_info")
"""Kinds of parts of imported files in which a person names the session: Claude Code, Codex, pi."""

GENERATED_TITLE: Final = "ai-title"
"""The kind of parts with a title by Claude Code's model. A person's name for a session wins."""


Price = Callable[[UsageReported], float | None]
"""The US dollars that a reported call cost; None where its model has no price."""


class SessionSums(msgspec.Struct, frozen=True):
    """The sums after the record at ``position``, which has this ``digest``.

    ``first`` and ``last`` are UTC nanoseconds (0: not dated), ``tokens`` those of the request
    prepared at ``prepared``, the last one. ``cost`` is that of the reported calls with a price, in
    US dollars, None without any; ``unpriced`` counts the others. ``spoken`` is the place of the
    first message with words of a person, ``raw`` the position of the first parts of an imported
    file, ``titled`` of the last ones with a title: a person's if there is one (``named``), else a
    generated one. The session is ``ended`` if its last own record says so.
    """

    position: int = -1
    digest: bytes = b""
    messages: int = 0
    turns: int = 0
    requests: int = 0
    observed: int = 0
    reconstructed: int = 0
    compactions: int = 0
    first: int = 0
    last: int = 0
    ended: bool = False
    imported_at: int | None = None
    format: str | None = None
    belongs_to: str | None = None
    link: str | None = None
    model: str | None = None
    tokens: int | None = None
    estimated: bool = False
    cost: float | None = None
    unpriced: int = 0
    prepared: int = -1
    spoken: Address | None = None
    raw: int | None = None
    titled: int | None = None
    named: bool = False


def initial() -> SessionSums:
    """The sums of an empty stream."""
    return SessionSums()


def count_record(sums: SessionSums, record: Record) -> SessionSums:
    """The sums with the place, the time and the type of ``record``, which need no decoding."""
    changes: dict[str, Any] = {"position": record.position, "digest": record.digest}
    kind, time = record.type, record.time
    if kind not in ABOUT_A_SESSION and time != sums.imported_at:
        changes["first"] = min(sums.first or time, time)
        changes["last"] = max(sums.last, time)
        changes["ended"] = kind == "session:end"
    match kind:
        case "context:message_added":
            changes["messages"] = sums.messages + 1
        case "context:cleared":
            changes["messages"] = 0
        case "prompt:submit":
            changes["turns"] = sums.turns + 1
        case "context:request_prepared":
            changes["requests"] = sums.requests + 1
        case "import:raw" if sums.raw is None:
            changes["raw"] = record.position
    return msgspec.structs.replace(sums, **changes)


_WITH_MESSAGES: Final = ("context:message_added", "context:messages_set")

_DECODED: Final = frozenset(
    (
        *("context:messages_set", "context:request_prepared", "context:post_compact"),
        *("usage:reported", "provider:request", "session:start", "session:linked", "import:raw"),
    )
)


def read_payload(sums: SessionSums, record: Record, price: Price | None = None) -> SessionSums:
    """The sums with the facts in the payload of ``record``; without a ``price`` it costs nothing.

    Raises DecodeError for a payload of a later release, or a damaged one.
    """
    if sums.spoken is None and record.type in _WITH_MESSAGES:
        sums = msgspec.structs.replace(sums, spoken=_spoken(record))
    if record.type not in _DECODED:
        return sums
    event: Any = decode_known(record)
    changes: dict[str, Any] = {}
    match record.type:
        case "context:messages_set":
            changes["messages"] = sum(last - first + 1 for first, last in event.order)
        case "context:request_prepared":
            figures = of_request(event, None)
            changes = {
                "tokens": figures.total,
                "estimated": True,
                "prepared": record.position,
                "model": event.model or sums.model,
            }
            if sums.format is not None and figures.known != "prepared":
                changes[figures.known] = getattr(sums, figures.known) + 1
        case "context:post_compact" if event.outcome == "applied" and not takes_back(event):
            changes["compactions"] = sums.compactions + 1
        case "usage:reported":
            changes = _usage(sums, event, price)
        case "provider:request":
            changes["model"] = event.model or sums.model
        case "session:start":
            changes["format"] = event.format
            if event.imported_at == record.time:  # the file has no times
                changes |= {"imported_at": event.imported_at, "first": 0, "last": 0}
        case "session:linked" if event.relation == "parent":
            changes |= {"belongs_to": event.session, "link": event.kind}
        case "import:raw" if any(kind in event.kinds for kind in TITLES):
            changes |= {"titled": record.position, "named": True}
        case "import:raw" if GENERATED_TITLE in event.kinds and not sums.named:
            changes["titled"] = record.position
    return msgspec.structs.replace(sums, **changes) if changes else sums


def evolve(sums: SessionSums, record: Record, price: Price | None = None) -> SessionSums:
    """The sums after ``record``."""
    return read_payload(count_record(sums, record), record, price)


def _usage(sums: SessionSums, event: UsageReported, price: Price | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if event.prepared == sums.prepared and event.prompt > 0:
        changes = {"tokens": event.prompt, "estimated": False}
    if price is not None:
        dollars = price(event)
        if dollars is None:
            changes["unpriced"] = sums.unpriced + 1
        else:
            changes["cost"] = (sums.cost or 0) + dollars
    return changes


def _spoken(record: Record) -> Address | None:
    for index, body in enumerate(record.bodies):
        if decode_facts(body.facts).human:
            return Address(record.position, index)
    return None
