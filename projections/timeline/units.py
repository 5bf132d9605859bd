"""The form of a document's values."""

from __future__ import annotations

from typing import Any, Final

MILLISECOND: Final = 1_000_000
"""Nanoseconds. A page's clock counts milliseconds."""

Document = dict[str, Any]
"""JSON values by name."""


def or_less(value: int | None) -> int:
    """A column's form of a number that may be missing: -1 for None."""
    return -1 if value is None else value
