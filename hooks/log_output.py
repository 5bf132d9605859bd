"""The set-up of log lines: their level and format, and a console's short form of them.

``EVENTCTX_LOG`` chooses both for a program whose author chose neither: ``debug``, ``json``, or
``debug,console``.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
import structlog

from eventctx.errors import InvalidSetting

ENVIRONMENT: Final = "EVENTCTX_LOG"
"""The environment variable that names a level, a format, or both."""

WIDTH: Final = 160
"""Characters of a record's line on a console, its end included."""

_FORMATS: Final = ("json", "console")
_ID: Final = re.compile(r"[0-9a-f]{16,64}\Z")
_SHOWN_OF_ID: Final = 8
_SHORTEST: Final = 16
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class LogChoice(NamedTuple):
    """A level and a format; None where nothing chooses it."""

    level: str | None = None
    json: bool | None = None


def from_environment() -> LogChoice:
    """The choice in ``EVENTCTX_LOG``. Raises InvalidSetting for a word that is neither."""
    return choice_of(os.environ.get(ENVIRONMENT, ""), ENVIRONMENT)


def choice_of(words: str, setting: str) -> LogChoice:
    """The choice that words name. Raises InvalidSetting for a word that is no level or format."""
    level, as_json = None, None
    for word in words.replace("|", ",").split(","):
        name = word.strip().lower()
        if name in _FORMATS:
            as_json = name == "json"
        elif name:
            level_number(name, setting, formats=True)
            level = name
    return LogChoice(level, as_json)


def level_number(name: str, setting: str = "log level", *, formats: bool = False) -> int:
    """The number of a standard level's name. Raises InvalidSetting.

    The message names the ``formats``, too, where a word may be one of them.
    """
    number = logging.getLevelNamesMapping().get(name.upper())
    if number is None:
        known = "debug, info, warning, error or critical"
        known += ", and json or console" if formats else ""
        raise InvalidSetting(f"{setting}: expected {known}, found {name!r}")
    return number


def set_up(as_json: bool, level: str, file: BinaryIO | None) -> dict[str, Any]:
    """The arguments of ``structlog.configure`` for a format and a level. Raises InvalidSetting."""
    number = level_number(level)
    out = sys.stderr.buffer if file is None else file
    encoder = msgspec.json.Encoder(enc_hook=str)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        last: list[Any] = [
            structlog.processors.dict_tracebacks,
            # structlog passes its serializer a ``default``, which msgspec does not need.
            structlog.processors.JSONRenderer(serializer=lambda value, **_: encoder.encode(value)),
        ]
    else:
        last = [_Console(structlog.dev.ConsoleRenderer(colors=out.isatty())), _to_bytes]
    return {
        "processors": [*shared, *last],
        "wrapper_class": structlog.make_filtering_bound_logger(number),
        "logger_factory": structlog.BytesLoggerFactory(file=out),
    }


class _Console:
    """Renders lines for people; a record's line is shortened until it fits ``WIDTH``."""

    def __init__(self, render: structlog.dev.ConsoleRenderer) -> None:
        self._render = render

    def __call__(self, logger: Any, method: str, fields: MutableMapping[str, Any]) -> str:
        if "session_id" not in fields or "position" not in fields:
            return self._render(logger, method, fields)  # another line of the program
        shown = {name: _short(value) for name, value in fields.items() if value is not None}
        while True:
            text = self._render(logger, method, dict(shown))
            over = len(_COLOURS.sub("", text)) + 1 - WIDTH
            given = [name for name in shown if name not in ("event", "level", "timestamp")]
            if over <= 0 or not given:
                return text
            longest = max(given, key=lambda name: len(str(shown[name])))
            size = len(str(shown[longest]))
            if size > _SHORTEST:
                kept = max(size - over - 1, _SHORTEST - 1)
                shown[longest] = f"{str(shown[longest])[:kept]}…"
            else:
                del shown[given[-1]]


def _short(value: object) -> object:
    if isinstance(value, str) and _ID.match(value):
        return value[:_SHOWN_OF_ID]
    return value


def _to_bytes(_logger: object, _method: str, text: str | MutableMapping[str, Any]) -> bytes:
    return str(text).encode("utf-8", "backslashreplace")
