"""Log lines: one per record, with structlog, and the same whether live or from the log.

A line is flat. Its event is the record's type; ``session_id``, ``turn_id``, ``span_id``,
``parent_span_id``, ``iteration``, ``position``, ``trace_id`` and ``time`` (of the record, RFC 3339
with nanoseconds) are always there; the payload's scalars follow by the rules of
``projections.flat``. A payload field whose name is taken is prefixed with its event's family:
``tool:pre`` has ``tool_name``. Contents never appear, sizes of bodies do.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from functools import lru_cache
from time import gmtime, strftime
from typing import Any, BinaryIO, Final

import msgspec
import structlog

from eventctx.codec import Unknown
from eventctx.errors import InvalidSetting
from eventctx.events import Event
from eventctx.projections.flat import read, scalars
from eventctx.projections.trace_ids import TraceIds, locate, needs
from eventctx.record import Record

MAX_SESSIONS: Final = 1024
"""Sessions whose ambient trace ids a sink remembers, the least recently heard of goes first."""

# Names that a line has anyway, and those that structlog or the standard library claims.
_IDENTITY: Final = (
    *("event", "session_id", "turn_id", "span_id", "parent_span_id", "iteration", "position"),
    *("trace_id", "time", "bodies", "body_bytes"),
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


def line(record: Record, trace_id: str | None = None) -> dict[str, Any]:
    """Return a record's log line. ``trace_id``: its trace's, where known; else it is derived.

    ``body_bytes`` is there if the record was read with its bodies.
    """
    event = read(record)
    return _line(record, event, trace_id or locate(TraceIds(), record, event)[1])


def lines(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Yield the log lines of one stream's records, equal to those that were written live."""
    ids = TraceIds()
    for record in records:
        event = read(record)
        ids, trace_id = locate(ids, record, event)
        yield _line(record, event, trace_id)


def level_of(fields: dict[str, Any]) -> str:
    """Return the level of a line: ``warning``, ``info`` or ``debug``."""
    kind = fields["event"]
    if kind.endswith(":error"):
        return "warning"
    if kind in _INFO:
        failed = fields.get("outcome") == "failed" or fields.get("status") == "error"
        return "warning" if failed else "info"
    return "debug"


class LogSink:
    """An observer that writes one line per record: ``hooks.on("*", LogSink())``.

    ``logger`` is a structlog logger; by default that of the host's own structlog set-up. Nothing
    here ever configures structlog.
    """

    def __init__(self, logger: Any = None) -> None:
        self._logger = structlog.get_logger("eventctx") if logger is None else logger
        self._ids: OrderedDict[str, TraceIds] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> None:
        """Write the record's line, unless the logger drops its level anyway."""
        logger = self._logger.bind()
        kind = record.type
        if kind not in _INFO and not kind.endswith(":error"):
            enabled = getattr(logger, "is_enabled_for", None)
            if enabled is not None and not enabled(logging.DEBUG):
                if needs(record):
                    self._locate(record, read(record))
                return
        event = read(record)
        fields = _line(record, event, self._locate(record, event))
        level = level_of(fields)
        getattr(logger, level)(fields.pop("event"), **fields)

    def _locate(self, record: Record, event: Event | Unknown) -> str:
        with self._lock:
            known = self._ids.get(record.stream)
            ids, trace_id = locate(known or TraceIds(), record, event)
            if ids.turns or ids.nested:
                self._ids[record.stream] = ids
                self._ids.move_to_end(record.stream)
                if len(self._ids) > MAX_SESSIONS:
                    self._ids.popitem(last=False)
        return trace_id


def configure_logging(json: bool = True, level: str = "info", file: BinaryIO | None = None) -> None:
    """Set structlog up for a program; the library itself never calls this.

    ``level`` is a standard level's name. Lines go to ``file``, or to standard error: as JSON (one
    object a line), or with colours for people. Lines of a lower level cost next to nothing.
    Raises InvalidSetting for a level that does not exist.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        known = "debug, info, warning, error or critical"
        raise InvalidSetting(f"log level: expected {known}, found {level!r}")
    out = sys.stderr.buffer if file is None else file
    encoder = msgspec.json.Encoder(enc_hook=str)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if json:
        last: list[Any] = [
            structlog.processors.dict_tracebacks,
            # structlog hands its serializer a ``default`` that msgspec has no use for.
            structlog.processors.JSONRenderer(serializer=lambda value, **_: encoder.encode(value)),
        ]
    else:
        last = [structlog.dev.ConsoleRenderer(colors=out.isatty()), _to_bytes]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )


def _to_bytes(_logger: object, _method: str, text: str | MutableMapping[str, Any]) -> bytes:
    return str(text).encode("utf-8", "backslashreplace")


def _line(record: Record, event: Event | Unknown, trace_id: str) -> dict[str, Any]:
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
    if record.bodies:
        fields["bodies"] = len(record.bodies)
        sizes = [len(body.data) for body in record.bodies if body.data is not None]
        if len(sizes) == len(record.bodies):
            fields["body_bytes"] = sum(sizes)
    for name, value in scalars(event).items():
        if name == "trace_id":
            continue
        if name in _TAKEN:
            name = f"{record.type.partition(':')[0]}_{name}"
        fields[name] = value
    return fields


def _rfc3339(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{_second(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))
