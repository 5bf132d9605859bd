"""Log lines and traces of a mounted session: ``log`` and ``otlp`` of a mount plan.

A program attaches sinks in code (``eventctx.open(sinks=…)``); a mount plan has none, so it names
them. What is wrong with a setting is an error at mount; a file that cannot be opened later is a
warning, and the session goes on without its lines.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.hooks.sinks import Sink
from eventctx.log.arguments import shown
from eventctx.log.private_files import make_folder
from eventctx.projections.trace.dialects import GENAI, check_dialect
from eventctx.text import without_password

ENVIRONMENT: Final = "EVENTCTX_LOG"
"""Attaches log lines where the mount plan says nothing of them."""

_PARTS: Final = ("level", "format", "file")

_log = logging.getLogger("eventctx.adapters.amplifier")


class SinksWanted(NamedTuple):
    """The sinks that a configuration names.

    ``words`` are level and format of log lines, as ``EVENTCTX_LOG`` has them; None for no lines.
    They go to ``file``, else to standard error. ``otlp`` is a collector's URL, and ``dialect`` that
    of the spans for it.
    """

    words: str | None = None
    file: Path | None = None
    otlp: str | None = None
    dialect: str = GENAI


NO_SINKS: Final = SinksWanted()


def read_sinks(log: object, otlp: object) -> SinksWanted:
    """Check the two settings. ``EVENTCTX_LOG`` stands in for ``log``. Raises InvalidSetting.

    ``log`` is a switch, words such as ``debug,json``, or a mapping with ``level``, ``format`` and
    ``file``; ``otlp`` a URL, or a mapping with ``url`` and ``dialect``.
    """
    words, file = _read_log(log)
    if words is not None:
        from eventctx.hooks.log_output import choice_of

        choice_of(words, ENVIRONMENT if log is None else "log")
    if otlp is None or otlp is False:
        return SinksWanted(words, file)
    url, dialect = _read_otlp(otlp)
    from eventctx.hooks.otlp import exporter_for

    exporter_for(url).shutdown()
    return SinksWanted(words, file, url, dialect)


def _read_log(log: object) -> tuple[str | None, Path | None]:
    if log is None:
        return os.environ.get(ENVIRONMENT) or None, None
    if isinstance(log, bool):
        return ("" if log else None), None
    if isinstance(log, str):
        return log, None
    if not isinstance(log, Mapping) or not set(log) <= set(_PARTS):
        raise InvalidSetting(
            "log: expected true, words such as 'debug,json', or a mapping with "
            f"{', '.join(_PARTS)}; found {shown(log)}"
        )
    texts = {name: log.get(name) or "" for name in _PARTS}
    for name, text in texts.items():
        if not isinstance(text, str | Path) or "\0" in str(text):
            raise InvalidSetting(f"log.{name}: expected a text, found {shown(text)}")
    words = ",".join([str(texts[name]) for name in ("level", "format") if texts[name]])
    return words, _absolute(texts["file"]) if texts["file"] else None


def _read_otlp(otlp: object) -> tuple[str, str]:
    """The collector's URL, and the dialect of the spans for it."""
    if not isinstance(otlp, Mapping):
        otlp = {"url": otlp}
    elif "url" not in otlp or not set(otlp) <= {"url", "dialect"}:
        raise InvalidSetting(
            "otlp: expected a collector's URL, or a mapping with url and dialect, found one with "
            f"{', '.join(map(str, otlp)) or 'nothing'}"
        )
    if not isinstance(otlp["url"], str):
        raise InvalidSetting(f"otlp: expected a collector's URL, found {shown(otlp['url'])}")
    return otlp["url"], check_dialect(otlp.get("dialect", GENAI))


def _absolute(given: str | Path) -> Path:
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidSetting(f"log.file: expected a file's path, found {shown(given)}") from error


def open_sinks(wanted: SinksWanted) -> tuple[Sequence[Sink], Callable[[], None]]:
    """The sinks for an engine, and the function that releases what they hold."""
    sinks: list[Sink] = []
    file: BinaryIO | None = None
    if wanted.words is not None:
        file = _open(wanted.file)
        if file is not None or wanted.file is None:
            sinks.append(_log_sink(wanted.words, file))
    if wanted.otlp is not None:
        sinks.append(_trace_sink(wanted.otlp, wanted.dialect))
    return sinks, (lambda: None) if file is None else file.close


def _open(path: Path | None) -> BinaryIO | None:
    if path is None:
        return None
    try:
        make_folder(path.parent)
        return path.open("ab", buffering=0)
    except OSError as error:
        _log.warning("log lines cannot be written and are left out: %s", error)
        return None


def _log_sink(words: str, file: BinaryIO | None) -> Sink:
    from eventctx.hooks.log import LogSink, logger_of
    from eventctx.hooks.log_output import choice_of

    chosen = choice_of(words, "log")
    if file is not None and chosen.json is None:
        chosen = chosen._replace(json=True)
    return LogSink(logger_of(chosen, file))


@cache
def _trace_sink(url: str, dialect: str) -> Sink:
    """The sink of a collector: one for the process, as it has a thread and a queue."""
    from eventctx.hooks.counting import configure_tracing

    _log.info("spans go to %s", without_password(url))
    return configure_tracing(url, dialect=dialect)
