"""A message of LangChain as a row of the log, and back.

A row has what a model is sent. The rest of a message (metadata, an artifact) is no part of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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

from eventctx.adapters.kit.host_list import plain_identity
from eventctx.adapters.kit.recordable import recordable

Row = dict[str, Any]

_ROLES: Final = {"human": "user", "ai": "assistant"}
NOT_SENT: Final = frozenset(("artifact", "response_metadata", "usage_metadata"))
"""Fields that no model is sent. An artifact may be any object of the program."""


def fields_of(message: BaseMessage) -> Row:
    """The fields of a message that a model is sent, with its role, as they are."""
    fields = message.model_dump(exclude=set(NOT_SENT))
    return {"role": _ROLES.get(message.type, message.type), **fields}


def row_of(message: BaseMessage) -> Row:
    """A message as a row. A text replaces a value that is no JSON, such as an argument of NaN."""
    return recordable(fields_of(message))


def identity(row: Mapping[str, Any]) -> Hashable:
    """The identity of a message: an edited message keeps the id that it has in the graph."""
    return plain_identity({name: row[name] for name in row if name != "additional_kwargs"})


def changed(message: BaseMessage, row: Row) -> bool:
    """Whether a middleware changed the message in its place, as a person's edit of a call does."""
    # Asking a model of pydantic for an attribute that it lacks takes as long as all else here.
    calls: Any = message.tool_calls if isinstance(message, AIMessage) else None
    return row["content"] != message.content or (row.get("tool_calls") or []) != (calls or [])


def message_of(row: Row) -> AnyMessage:
    """The message of a row, which a view may have shortened or inserted."""
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
