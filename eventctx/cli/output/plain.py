"""Texts, numbers and times as a screen shows them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from eventctx.text import clip, escape

NOT_RECORDED: Final = "not recorded"
"""The words for a figure that the log does not hold, on every screen."""

_SPACES: Final = re.compile(r"\s+")
_LONG_RUN: Final = 400
"""Characters without a break from which a text counts as base64."""

_BASE64: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{_LONG_RUN},}}={{0,2}}")
_NANOSECONDS: Final = 1_000_000_000


def one_line(text: str, width: int | None = None) -> str:
    """``text`` on one line, escaped, cut to ``width`` characters with an ellipsis."""
    if width is not None:
        text = text[: 4 * width + 200]
    joined = escape(_SPACES.sub(" ", text.replace("\r\n", "\n")).strip())
    return joined if width is None else clip(joined, width)


def abridged(text: str) -> str:
    """``text`` with long runs of base64 cut to their beginning and their length."""
    return text if len(text) < _LONG_RUN else _BASE64.sub(_beginning, text)


def _beginning(run: re.Match[str]) -> str:
    found = run[0]
    kinds = (str.isupper, str.islower, str.isdigit)
    if not all(any(map(kind, found)) for kind in kinds):
        return found  # a line of signs, a number in hex digits
    return f"{found[:24]}… ({len(found):,} characters of base64)"


def number(value: int | None) -> str:
    """12345 as 12,345; a dash for None."""
    return "–" if value is None else f"{value:,}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def size(count: int) -> str:
    """Bytes in the unit that suits them, for people: B, KB, MB or GB, by thousands."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return str(count)


def moment(time: int) -> datetime:
    """UTC nanoseconds as a time; the nanoseconds are cut to microseconds."""
    seconds, rest = divmod(time, _NANOSECONDS)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def day(time: int) -> str:
    """The UTC day."""
    return moment(time).strftime("%Y-%m-%d")


def clock(time: int) -> str:
    """The UTC time of day, in milliseconds."""
    return moment(time).strftime("%H:%M:%S.%f")[:-3]


def minute(time: int) -> str:
    """Day and time in UTC, to the second."""
    return moment(time).strftime("%Y-%m-%d %H:%M:%S")


def minute_or(time: int, undated: int | None) -> str:
    """Day and time in UTC; ``not dated`` for ``undated``, the time of an import without times."""
    return "not dated" if time == undated else f"{minute(time)} UTC"
