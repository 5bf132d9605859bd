"""LangChain's messages as rows of the log, and back.

A row is the message's own fields and a ``role``. A row that the view shows whole goes back as the
very object that the graph holds, so nothing of it is lost: no artifact, no class of one's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
)
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from eventctx.adapters.kit.host_list import plain_identity
from eventctx.adapters.kit.recordable import recordable

Row = dict[str, Any]

_ROLES: Final = {"human": "user", "ai": "assistant"}
_NOT_SENT: Final = frozenset(("artifact", "response_metadata", "usage_metadata"))
"""Fields that no model is sent. An artifact may be any object of the program."""


def row_of(message: BaseMessage) -> Row:
    """A message as a row. A text replaces a value that is no JSON, such as an argument of NaN."""
    fields = message.model_dump(exclude=set(_NOT_SENT))
    return recordable({"role": _ROLES.get(message.type, message.type), **fields})


def identity(row: Mapping[str, Any]) -> Hashable:
    """The identity of a message: an edited message keeps the id that it has in the graph."""
    return plain_identity({name: row[name] for name in row if name != "additional_kwargs"})


class KnownRows:
    """The rows of the messages that a graph holds, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[BaseMessage, Row]] = {}
        self._said: dict[int, tuple[Row, Hashable]] = {}

    def of(self, messages: Sequence[BaseMessage]) -> list[Row]:
        """The messages' rows; those of messages that are not among them are forgotten."""
        found: dict[int, tuple[BaseMessage, Row]] = {}
        for one in messages:
            known = self._made.get(id(one))
            if known is None or known[0] is not one or _changed(one, known[1]):
                known = (one, row_of(one))
            found[id(one)] = known
        self._made = found
        return [row for _, row in found.values()]

    def messages_of(self, rows: Sequence[Row]) -> list[AnyMessage]:
        """Rows of a view as messages; those that were made of a message are that message."""
        known: list[tuple[Any, Row]] = list(self._made.values())
        places: dict[Hashable, int] | None = None
        found: list[AnyMessage] = []
        start = 0
        for row in rows:
            # Views keep the order: mostly the next row is the next message, which costs no digest.
            ahead = range(start, len(known))
            place = next((at for at in ahead if known[at][1] == row), None)
            if place is None:
                if places is None:
                    places = self._places([one for _, one in known])
                place = places.get(identity(row))
            found.append(_new_message(row) if place is None else known[place][0])
            start = start if place is None else place + 1
        return found

    def _places(self, rows: Sequence[Row]) -> dict[Hashable, int]:
        """The rows' places by what they say. A digest is made once: it reads the whole message."""
        before = self._said
        self._said = {}
        for one in rows:
            known = before.get(id(one))
            new = known is None or known[0] is not one
            self._said[id(one)] = (one, identity(one)) if new or known is None else known
        return {said: at for at, (_, said) in enumerate(self._said.values())}


def _changed(message: BaseMessage, row: Row) -> bool:
    """Whether a middleware changed the message in its place, as a person's edit of a call does."""
    calls: Any = getattr(message, "tool_calls", None)
    return row["content"] != message.content or (row.get("tool_calls") or []) != (calls or [])


def _new_message(row: Row) -> AnyMessage:
    """A message for a row that the view shortened or inserted."""
    if "type" in row:
        fields = {name: value for name, value in row.items() if name != "role"}
        fields["content"] = fields["content"] or ""  # a view says None, which no message takes
        made: Any = messages_from_dict([{"type": row["type"], "data": fields}])[0]
        return made  # type: ignore[no-any-return]
    if row["role"] == "tool":  # of a call that a crash left open
        return ToolMessage(row["content"], tool_call_id=row["tool_call_id"])
    kinds: dict[str, type[BaseMessage]] = {"system": SystemMessage, "assistant": AIMessage}
    inserted: Any = kinds.get(row["role"], HumanMessage)(row["content"])
    return inserted  # type: ignore[no-any-return]


def tool_definitions(tools: Sequence[BaseTool | dict[str, Any]]) -> list[Row]:
    """The tools' definitions in OpenAI's form, which counts about as those of other APIs do."""
    return [convert_to_openai_tool(one) for one in tools]
