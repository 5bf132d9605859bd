"""Rules about the items of OpenAI's Responses API: reasoning on its own, and ids used twice."""

from __future__ import annotations

from typing import Final

from eventctx.messages.response_items import (
    ID_OF_CALL,
    REFERENCE,
    is_item,
    type_of,
)
from eventctx.projections.view.render import ERASED
from eventctx.projections.view.sendable.rows import Row, RowChange, Rows


def drop_lone_reasoning(rows: Rows) -> list[RowChange]:
    """Leave out reasoning that no item of its answer follows, and ids that would ask for it."""
    changes = []
    following: Row | None = None
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place]
        if row is None:
            continue
        if row.get("type") == "reasoning" and row.get("role") is None:
            if following is None or not _is_led_to(following):
                rows[place] = None
                changes.append(RowChange(place, "reasoning_alone", _id_of(row)))
                continue
        elif _was_reasoning(row) and following is not None and _is_led_to(following):
            changes += _without_ids(rows, place, "reasoning_alone")
        following = row
    return changes


def _is_led_to(row: Row) -> bool:
    """Whether a row is part of an answer. An unknown item more likely is than not."""
    given = str(row.get("type")).endswith(("_output", "_response"))
    return row.get("role", "assistant") == "assistant" and not given


def _was_reasoning(row: Row) -> bool:
    """Whether a row may take the place of reasoning that was erased."""
    return row.get("role") == "assistant" and row.get("content") == ERASED


def _without_ids(rows: Rows, reasoning: int, rule: str) -> list[RowChange]:
    """Take the ids off the items that reasoning led to: the API asks for it where it sees them."""
    changes = []
    for place in range(reasoning + 1, len(rows)):
        row = rows[place]
        if row is None:
            continue
        if row.get("type") in (None, "reasoning", REFERENCE) or not _is_led_to(row):
            break
        own = _id_of(row)
        if own:
            rows[place] = _without_id(row)
            changes.append(RowChange(place, rule, own))
    return changes


def drop_known_ids(rows: Rows) -> list[RowChange]:
    """Take the id off an item that has one of an earlier item; reasoning is left out as a whole."""
    changes = []
    known: set[str] = set()
    for place, row in enumerate(rows):
        own = _id_of(row) if row is not None and _has_own_id(row) else ()
        if row is None or not own:
            continue
        if own[0] not in known:
            known.add(own[0])
            continue
        changes.append(RowChange(place, "item_id_used_twice", own))
        if type_of(row) not in ("reasoning", REFERENCE):
            rows[place] = _without_id(row)
            continue
        rows[place] = None
        if type_of(row) == "reasoning":
            changes += _without_ids(rows, place, "item_id_used_twice")
    return changes


_PLACEHOLDER: Final = "__fake_id__"
"""The id that OpenAI's Agents SDK gives items of other APIs; its clients take it off again."""


def _has_own_id(row: Row) -> bool:
    if row.get("id") == _PLACEHOLDER or type_of(row) in ID_OF_CALL:
        return False
    return is_item(row) or row.get("type") == "message"


def _without_id(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "id"}


def _id_of(row: Row) -> tuple[str, ...]:
    own = row.get("id")
    return (own,) if isinstance(own, str) else ()
