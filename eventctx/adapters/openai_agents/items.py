"""Items of the SDK as rows of the log: the same, but for what the Responses API does not know.

A session may be given what is no message: ``EncryptedSession`` stores ``{"__enc__": 1, …}``, which
has no role and no type. A row of the log needs one of them.
"""

from __future__ import annotations

from typing import Any, Final

from eventctx.adapters.kit.host_session import Row

_OTHER: Final = "other_item"
"""The type of a row that holds an item without role and type."""


def row_of(item: Any) -> Row:
    """The row that an item is kept as."""
    known = not isinstance(item, dict) or "role" in item or "type" in item
    return item if known else {"type": _OTHER, "item": item}


def item_of(row: Row) -> Row:
    """The item that a row was made of."""
    item: Any = row.get("item")
    return item if row.get("type") == _OTHER and isinstance(item, dict) else row


def without_dropped_ids(rows: list[Row], given: list[Row]) -> list[Row]:
    """The rows of a view, where the SDK dropped the ids of reasoning from the list that it gave.

    With ``reasoning_item_id_policy="omit"`` it takes out ids that a session holds, because the API
    no longer knows them. The very rows, if it dropped none.
    """
    kept = {item.get("id") for item in given if item.get("type") == "reasoning"}
    if None not in kept or not any(_dropped(row, kept) for row in rows):
        return rows
    return [
        {name: value for name, value in row.items() if name != "id"} if _dropped(row, kept) else row
        for row in rows
    ]


def _dropped(row: Row, kept: set[Any]) -> bool:
    return row.get("type") == "reasoning" and row.get("id") not in kept
