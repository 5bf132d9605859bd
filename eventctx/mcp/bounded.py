"""Documents cut to a number of characters, which say what was left out and how to ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from eventctx.queries.encoding import encode

LONGEST_TEXT: Final = 2_000
"""Characters of one text in an answer; a reader asks for the message to have it whole."""

_SHORTER: Final = (500, 100, 20)
"""Tried in turn where not even one row fits."""

_LONGEST_LIST: Final = 50
_NOTE: Final = 300
"""Characters that are kept free for what is said of the part left out."""


class Rows(NamedTuple):
    """The list of a document that may be long: its key, its rows, and how many were passed over.

    ``more`` says how to ask for the rows that follow, with ``{skip}`` for their number.
    """

    key: str
    rows: Sequence[Any]
    skip: int
    more: str


def bounded(
    head: dict[str, Any], rows: Rows | None, most: int, longest: int = LONGEST_TEXT
) -> dict[str, Any]:
    """The document of ``head`` and as many rows as its JSON of ``most`` characters holds.

    ``left_out`` has what is missing: rows before and after, and whether texts were cut.
    """
    for length in (longest, *[one for one in _SHORTER if one < longest]):
        found = _fitted(head, rows, most, length)
        if found is not None:
            return found
    return {"left_out": f"the answer has more than {most} characters: ask for a part of it"}


def cut(value: Any, longest: int) -> tuple[Any, bool]:
    """The value with texts and lists of bounded length, and whether anything was cut."""
    if isinstance(value, str):
        if len(value) <= longest:
            return value, False
        return f"{value[:longest]}… [{len(value) - longest:,} more characters]", True
    if isinstance(value, list):
        kept = [cut(one, longest) for one in value[:_LONGEST_LIST]]
        rest = len(value) - len(kept)
        more = [f"… [{rest:,} more]"] if rest else []
        return [one for one, _ in kept] + more, bool(rest) or any(was for _, was in kept)
    if isinstance(value, dict):
        parts = {key: cut(one, longest) for key, one in value.items()}
        return {key: one for key, (one, _) in parts.items()}, any(was for _, was in parts.values())
    return value, False


def _fitted(
    head: dict[str, Any], rows: Rows | None, most: int, longest: int
) -> dict[str, Any] | None:
    """The document, or None where texts of ``longest`` characters leave no room for one row."""
    parts = {key: cut(one, longest) for key, one in head.items()}
    document = {key: one for key, (one, _) in parts.items()}
    was_cut = any(was for _, was in parts.values())
    room = most - len(encode(document).decode()) - _NOTE
    if room < 0:
        return None
    left: dict[str, Any] = {}
    if rows is not None:
        waiting = rows.rows[rows.skip :]
        shown: list[Any] = []
        for row in waiting:
            one, one_was_cut = cut(row, longest)
            room -= len(encode(one).decode()) + 1
            if room < 0:
                break
            shown.append(one)
            was_cut = was_cut or one_was_cut
        if waiting and not shown:
            return None
        document[rows.key] = shown
        after = len(waiting) - len(shown)
        if rows.skip:
            left["before"] = min(rows.skip, len(rows.rows))
        if after:
            left |= {"after": after, "more": rows.more.format(skip=rows.skip + len(shown))}
    if was_cut:
        left["texts"] = "long ones were cut; recall with `message` reads one whole"
    return {**document, "left_out": left or None}
