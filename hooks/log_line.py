"""A record's log line: the same whether live or from the log.

A line is flat. Its event is the record's type; ``session_id``, ``turn_id``, ``span_id``,
``parent_span_id``, ``iteration``, ``position``, ``trace_id`` and ``time`` (of the record, RFC 3339
with nanoseconds) are always there, None where they do not apply; the payload's scalars follow by
the rules of ``projections.flat``. A payload field whose name is taken is prefixed with its event's
family: ``tool:pre`` has ``tool_name``. A line has the sizes of bodies, and their contents only if
enabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from time import gmtime, strftime
from typing import Any, Final, Literal

from eventctx.hooks.redact import DEFAULT, MARGIN, Redactor
from eventctx.log.codec import Unknown
from eventctx.log.events import Event, ImportRaw
from eventctx.log.record import Record
from eventctx.projections.flat import MAX_TEXT, read, scalars
from eventctx.projections.trace.identity import TraceIds, has_trace, locate
from eventctx.text import clip

Level = Literal["debug", "info", "warning"]

MAX_CONTENT: Final = 4000
"""Most characters of a record's contents in its line; ``body_bytes`` is their whole size."""

# Names that every line has, and names that structlog or the standard library uses.
_IDENTITY: Final = (
    *("event", "session_id", "turn_id", "span_id", "parent_span_id", "iteration", "position"),
    *("trace_id", "time", "bodies", "body_bytes", "content"),
)
_CLAIMED: Final = (
    *("level", "logger", "timestamp", "exc_info", "stack_info", "exception", "stack", "name"),
    *("message", "msg", "args", "module", "process", "thread"),
)
_TAKEN: Final = frozenset((*_IDENTITY, *_CLAIMED))
_INFO: Final = frozenset(
    ("prompt:submit", "prompt:complete", "context:pre_compact", "context:post_compact")
)
_NANOSECONDS: Final = 1_000_000_000


def line(
    record: Record,
    trace_id: str | None = None,
    *,
    redactor: Redactor | None = DEFAULT,
    content: bool = False,
) -> dict[str, Any]:
    """Return a record's log line. ``trace_id`` is its trace's, if known; else it is derived.

    A record that is in no trace has None.

    The line has ``body_bytes`` if the record was read with its bodies. ``redactor`` replaces
    secrets; None for no redaction. ``content``: with the text of the bodies, at most
    ``MAX_CONTENT`` characters of it.
    """
    event = read(record)
    if trace_id is None:
        ids, derived = locate(TraceIds(), record, event)
        trace_id = derived if has_trace(ids, record) else None
    return build(record, event, trace_id, redactor, content)


def lines(
    records: Iterable[Record], *, redactor: Redactor | None = DEFAULT, content: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the log lines of one stream's records, equal to the lines written live."""
    ids = TraceIds()
    for record in records:
        event = read(record)
        if record.type == "session:fork":
            ids = TraceIds()  # a turn that was open at the fork belongs to the parent's trace
        ids, trace_id = locate(ids, record, event)
        known = trace_id if has_trace(ids, record) else None
        yield build(record, event, known, redactor, content)


def level_of(fields: dict[str, Any]) -> Level:
    """Return the level of a line."""
    failed = fields.get("outcome") == "failed" or fields.get("status") in ("error", "lost")
    # Another policy decided, because the chosen one failed.
    return level_for(fields["event"], failed or fields.get("fallback") is not None)


def level_for(kind: str, failed: bool) -> Level:
    """Return the level of a record's line; ``failed``: the record reports a failure."""
    if kind.endswith(":error"):
        return "warning"
    if kind in _INFO:
        return "warning" if failed else "info"
    return "debug"


def build(
    record: Record,
    event: Event | Unknown,
    trace_id: str | None,
    redactor: Redactor | None,
    content: bool,
) -> dict[str, Any]:
    """Return the line of a record, from its decoded event and its trace id, if it has a trace."""
    fields: dict[str, Any] = {
        "event": record.type,
        "session_id": record.stream,
        "turn_id": record.turn_id,
        "span_id": record.span_id,
        "parent_span_id": record.parent_span_id,
        "iteration": record.iteration,
        "position": record.position,
        "trace_id": trace_id,
        "time": _rfc3339(record.time),
    }
    bodies = record.bodies
    if bodies:
        fields["bodies"] = len(bodies)
        sizes = [len(body.data) for body in bodies if body.data is not None]
        if len(sizes) == len(bodies):
            fields["body_bytes"] = sum(sizes)
        if content and sizes and not _packed(event):
            fields["content"] = _shown(_contents(record), MAX_CONTENT, redactor)
    # Texts are redacted whole and cut last: redaction would not recognise a part of a secret.
    if redactor is None:
        fields.update(scalars(event, _named))
    else:
        fields.update(redactor.fields(scalars(event, _named, None), limit=MAX_TEXT))
    fields["trace_id"] = trace_id  # the payload of prompt:submit has the same one, or None
    return fields


def _named(kind: str, field: str) -> str:
    if field == "trace_id" or field not in _TAKEN:
        return field
    return f"{kind.partition(':')[0]}_{field}"


def _packed(event: Event | Unknown) -> bool:
    return isinstance(event, ImportRaw) and event.encoding != "plain"


def _contents(record: Record) -> str:
    """The beginning of the bodies' text, long enough to be redacted and cut."""
    room = MAX_CONTENT + MARGIN + 1
    parts: list[str] = []
    for body in record.bodies:
        if body.data is not None and room > 0:
            # A character takes at most four bytes; the last one may be cut in two, hence "ignore".
            part = body.data[: 4 * room].decode("utf-8", "ignore")[:room]
            parts.append(part)
            room -= len(part) + 1
    return "\n".join(parts)


def _shown(text: str, limit: int, redactor: Redactor | None) -> str:
    if redactor is not None:
        return redactor.cut(text, limit)
    return clip(text, limit)


def _rfc3339(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{_second(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))
