"""A host's row as the log can hold it: a text replaces each value that is no JSON.

A host keeps a message in its own storage and gives it with every request. If the log refused one,
every later turn of that conversation would fail, although the host can live with it.
"""

from __future__ import annotations

from typing import Any

from eventctx.errors import InvalidMessage
from eventctx.log.arguments import shown
from eventctx.messages.encoding import MAX_DEPTH, plain_message

Row = dict[str, Any]


def recordable(row: Row) -> Row:
    """The row, or a copy in which a text says what no JSON holds.

    Such are NaN, objects of the program, integers beyond 64 bits, half of a surrogate pair, and
    what is nested too deeply.
    """
    try:
        return plain_message(row)
    except InvalidMessage:
        made: Row = _as_json(row, 0)
        return made


def _as_json(value: Any, depth: int) -> Any:
    if isinstance(value, dict | list | tuple):
        if depth >= MAX_DEPTH:
            return _text(value)
        # Loops, for comprehensions would take twice the stack.
        if isinstance(value, dict):
            fields: Row = {}
            for key, one in value.items():
                fields[_text(key)] = _as_json(one, depth + 1)
            return fields
        items: list[Any] = []
        for one in value:
            items.append(_as_json(one, depth + 1))  # noqa: PERF401
        return items
    try:
        return plain_message({"value": value})["value"]
    except InvalidMessage:
        return _text(value)


def _text(value: object) -> str:
    try:
        text = str(value)
    except Exception:  # it is the program's object, or nested deeper than Python shows
        text = shown(value)
    return text.encode("utf-8", "backslashreplace").decode()
