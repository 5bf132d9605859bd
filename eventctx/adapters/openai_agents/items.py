"""Objects of the SDK as the log takes them: items as rows, tools as definitions, a model's name.

A row is the item, but for what the Responses API does not know: ``EncryptedSession`` stores
``{"__enc__": 1, …}``, which has no role and no type. A row of the log needs one of them.
"""

from __future__ import annotations

from typing import Any, Final

from agents import Agent, FunctionTool, RunConfig

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


def tool_definitions(agent: Agent[Any]) -> list[dict[str, Any]]:
    """The definitions of an agent's function tools, as the Responses API takes them.

    Tools of MCP servers and hosted tools are listed by servers, and do not count.
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
        for tool in agent.tools
        if isinstance(tool, FunctionTool)
    ]


def model_name(agent: Agent[Any], config: RunConfig) -> str | None:
    """The name of the model that will be called, as far as the agent or the run says it."""
    model = config.model if config.model is not None else agent.model
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None
