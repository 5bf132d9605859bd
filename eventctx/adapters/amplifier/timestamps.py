"""``metadata.timestamp`` on the rows of a transcript, for hosts that replay one at its own speed.

The log has the time of every record, so nothing is stored: a row gets its time on the way out, in
the form that context-simple gives it. ``session/reconcile.py`` leaves times out when such a row
comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def stamped(timed: Iterable[tuple[dict[str, Any], int]]) -> list[dict[str, Any]]:
    """The rows, each with the time (UTC nanoseconds) of its record if it has none of its own."""
    return [_stamped(row, time) for row, time in timed]


def _stamped(row: dict[str, Any], time: int) -> dict[str, Any]:
    metadata = row.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or metadata.get("timestamp") or row.get("timestamp"):
        return row
    at = (_EPOCH + timedelta(microseconds=time // 1_000)).isoformat(timespec="milliseconds")
    return {**row, "metadata": {**metadata, "timestamp": at}}
