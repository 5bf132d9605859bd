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
