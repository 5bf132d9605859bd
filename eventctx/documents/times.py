"""Times for machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_NANOSECONDS: Final = 1_000_000_000


def iso(time: int) -> str:
    """UTC nanoseconds as RFC 3339 with all nine decimals."""
    seconds, rest = divmod(time, _NANOSECONDS)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:09d}Z"


def iso_or(time: int, undated: int | None) -> str | None:
    """A time; None for ``undated``, the time of an import without times."""
    return None if time == undated else iso(time)
