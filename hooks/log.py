"""Log lines: one for each record, through structlog or the standard library's logging.

Invariant: a record's line is the same live and from the log. It is flat. Its event is the record's
type; ``session_id``, ``turn_id``, ``span_id``, ``parent_span_id``, ``iteration``, ``position``,
``trace_id`` and ``time`` (of the record, RFC 3339 with nanoseconds) are always there, None where
they do not apply; the payload's scalars follow by the rules of ``projections.flat``. A payload
field whose name is taken has its event's family before it: ``tool:pre`` has ``tool_name``. A line
has the sizes of bodies, and their contents only if enabled.

The sink uses the host's logging set-up as it is; only ``configure_logging``, which is for programs,
configures a logging library.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from time import gmtime, strftime
from typing import Any, BinaryIO, Final, Literal

import structlog
from structlog.stdlib import AsyncBoundLogger

from eventctx.hooks.handlers import PerSession, renew_after_fork
from eventctx.hooks.log_output import ENVIRONMENT, LogChoice, from_environment, set_up
from eventctx.hooks.redact import DEFAULT, MARGIN, Redactor
from eventctx.log.codec import Unknown
from eventctx.log.events import Event, ImportRaw, LossSuspected
from eventctx.log.record import Record
from eventctx.projections.flat import MAX_TEXT, read, scalars
from eventctx.projections.trace.identity import TraceIds, has_trace, locate, needs
from eventctx.text import clip, escape_breaks

__all__ = ["LogSink", "configure_logging", "level_of", "line", "lines"]

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
    (
        *("prompt:submit", "prompt:complete", "context:pre_compact", "context:post_compact"),
        "context:loss_suspected",
    )
)
_NANOSECONDS: Final = 1_000_000_000


# -- a record's line -----------------------------------------------------------------------------


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
    failed = failed or (fields["event"] == "context:loss_suspected" and fields["kind"] == "prompt")
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
        if content and sizes and not _is_packed(event):
            fields["content"] = _cut(_contents(record), MAX_CONTENT, redactor)
    # Texts are redacted whole and cut last: redaction would not recognise a part of a secret.
    if redactor is None:
        fields.update(scalars(event, _name_field))
    else:
        fields.update(redactor.fields(scalars(event, _name_field, None), limit=MAX_TEXT))
    fields["trace_id"] = trace_id  # the payload of prompt:submit has the same one, or None
    return fields


def _name_field(kind: str, field: str) -> str:
    if field == "trace_id" or field not in _TAKEN:
        return field
    return f"{kind.partition(':')[0]}_{field}"


def _is_packed(event: Event | Unknown) -> bool:
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


def _cut(text: str, limit: int, redactor: Redactor | None) -> str:
    if redactor is not None:
        return redactor.cut(text, limit)
    return clip(text, limit)


def _rfc3339(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{_second(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


# -- the sink ------------------------------------------------------------------------------------

MAX_SESSIONS: Final = 1024
"""Most sessions whose ambient trace ids a sink keeps; the least recently seen is dropped first."""

_NUMBERS: Final[dict[Level, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
}
_NO_IDS: Final = TraceIds()
_NOT_IN_MESSAGE: Final = frozenset(
    (
        *("event", "turn_id", "span_id", "parent_span_id", "iteration", "trace_id", "time"),
        *("bodies", "body_bytes", "content"),
    )
)


class LogSink:
    """An observer that writes one line per record: ``hooks.on("*", LogSink())``.

    ``logger`` is a structlog logger, or one of the standard library, which gets a readable message
    and the fields as ``extra``. Its formatters write texts as they are, so line ends and control
    characters are escaped there: a value must not make a line of its own. By default it is the
    logger ``eventctx`` of the host's own structlog set-up, also of one that is made later. Where
    there is none, ``EVENTCTX_LOG`` chooses level and format (``debug``, ``json``,
    ``debug,console``).
    ``redactor`` replaces secrets; None for no redaction. With ``content``, lines carry the text of
    messages and other bodies, redacted and cut.

    An error of the logger is raised here, so that the registry catches and counts it.
    """

    def __init__(
        self,
        logger: Any = None,
        *,
        redactor: Redactor | None = DEFAULT,
        content: bool = False,
    ) -> None:
        self._logger = logger
        self._standard = isinstance(logger, logging.Logger | logging.LoggerAdapter)
        self._redactor = redactor
        self._content = content
        self._configured: dict[str, Any] = {}
        self._default: Any = None
        self._ids = PerSession[TraceIds](MAX_SESSIONS)
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Take a new lock in a forked child."""
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> None:
        """Write the record's line, unless the logger drops its level anyway."""
        given, standard = self._logger, self._standard
        logger = given if standard else (self._hosts() if given is None else given).bind()
        if isinstance(logger, AsyncBoundLogger):
            logger = logger.sync_bl  # its own methods make coroutines, which nobody here awaits
        # Only a failure has level ``warning``, and the payload must be read to see whether it is
        # one. So first test whether the logger takes the highest level that the line may have.
        most = level_for(record.type, failed=True)
        if not _takes(logger, most):
            if needs(record):
                self._locate(record, read(record))
            return
        event = read(record)
        trace_id = self._locate(record, event)
        level = level_for(record.type, failed=most == "warning" and _is_failure(event))
        if level != most and not _takes(logger, level):
            return
        fields = build(record, event, trace_id, self._redactor, self._content)
        if standard:
            fields = _escape_breaks(fields)
            _write(logger, _NUMBERS[level], _message(fields), fields)
        else:
            getattr(logger, level)(fields.pop("event"), **fields)

    def _hosts(self) -> Any:
        """The host's own logger; a new one as soon as structlog is configured again.

        A logger that was cached on first use would go on writing to the old set-up's output.
        """
        found = structlog.get_config()
        if found != self._configured:
            self._configured = found
            self._default = _by_environment() or structlog.get_logger("eventctx")
        return self._default

    def _locate(self, record: Record, event: Event | Unknown) -> str | None:
        with self._lock:
            known = self._ids.get(record.stream)
            ids, trace_id = locate(known or _NO_IDS, record, event)
            if ids.turns or ids.outside:
                self._ids.keep(record.stream, ids)
        return trace_id if has_trace(ids, record) else None


def _takes(logger: Any, level: Level) -> bool:
    """Whether a logger takes a level; true if it has no way to find out."""
    kind = type(logger)
    # Look at the class: an instance of structlog's generic logger has every name as a method.
    name = "is_enabled_for" if hasattr(kind, "is_enabled_for") else "isEnabledFor"
    if not hasattr(kind, name):
        return True
    try:
        return bool(getattr(logger, name)(_NUMBERS[level]))
    except AttributeError:
        # structlog's logger for the standard library, wrapped around something else.
        return True


def _is_failure(event: Event | Unknown) -> bool:
    if isinstance(event, LossSuspected):
        return event.kind == "prompt"
    if getattr(event, "outcome", None) == "failed" or getattr(event, "fallback", None) is not None:
        return True
    return getattr(event, "status", None) in ("error", "lost")


def _message(fields: dict[str, Any]) -> str:
    """The message for set-ups that show nothing else: the event and the payload's fields."""
    shown = [f"{name}={value}" for name, value in fields.items() if name not in _NOT_IN_MESSAGE]
    return " ".join([fields["event"], *shown])


def _escape_breaks(value: Any) -> Any:
    """A value whose texts, also those inside it, have escapes for line ends and controls."""
    if isinstance(value, str):
        return escape_breaks(value)
    if isinstance(value, tuple | list):
        return type(value)([_escape_breaks(item) for item in value])
    if isinstance(value, Mapping):
        return {_escape_breaks(name): _escape_breaks(item) for name, item in value.items()}
    return value


def _write(logger: Any, level: int, message: str, fields: dict[str, Any]) -> None:
    """Log with the fields as ``extra``, joined to an adapter's, which would replace them."""
    options: Any = {"extra": fields}
    while isinstance(logger, logging.LoggerAdapter):
        extra = options["extra"]
        message, options = logger.process(message, options)
        options["extra"] = {**extra, **(options.get("extra") or {})}
        logger = logger.logger
    logger.log(level, message, **options)


def configure_logging(
    json: bool | None = None, level: str | None = None, file: BinaryIO | None = None
) -> None:
    """Set structlog up for a program; the library itself never calls this.

    ``level`` is a standard level's name. Lines go to ``file``, or to standard error: as JSON (one
    object per line), or with colours for people, a record's in at most 160 characters. What is None
    is as ``EVENTCTX_LOG`` says (``debug``, ``console``, ``debug,json``, …), else JSON and
    ``info``. Lines of a lower level cost next to nothing. Raises InvalidSetting for a level that
    does not exist.
    """
    chosen = from_environment() if json is None or level is None else LogChoice()
    as_json = json if json is not None else chosen.json is not False
    structlog.configure(
        **set_up(as_json, level or chosen.level or "info", file), cache_logger_on_first_use=True
    )


def logger_of(chosen: LogChoice, file: BinaryIO | None = None) -> Any:
    """A logger with a set-up of its own, which changes nothing of the process's.

    Lines are for people and of level ``info`` where nothing is chosen. Raises InvalidSetting.
    """
    made = set_up(chosen.json is True, chosen.level or "info", file)
    factory = made.pop("logger_factory")
    return structlog.wrap_logger(factory(), **made)


def _by_environment() -> Any:
    """A logger as ``EVENTCTX_LOG`` says, for a program that has not set structlog up; else None."""
    if structlog.is_configured() or not os.environ.get(ENVIRONMENT):
        return None
    return logger_of(from_environment())
