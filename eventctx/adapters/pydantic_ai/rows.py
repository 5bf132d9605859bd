"""Pydantic AI's messages as rows of the log, and back.

A part becomes a block with its own fields, of which those that the engine reads have the names that
it knows. So there is one copy, which is shortened in its place, and becomes a part again. A request
is a row for each voice in it: the system's, a person's, the tools', and the framework's own. A
response is one row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from eventctx.adapters.kit.host_list import plain_identity
from eventctx.adapters.kit.recordable import recordable

Row = dict[str, Any]

FIELDS: Final = "pydantic_ai"
"""The key of a row under which the fields of its message stand: what is in no part."""

_TYPES: Final = {
    "text": "text",
    "thinking": "thinking",
    "tool-call": "tool_use",
    "tool-return": "tool_result",
}
_NAMES: Final = {
    "text": {"content": "text"},
    "thinking": {"content": "thinking"},
    "tool-call": {
        "id": "item_id",
        "tool_call_id": "id",
        "tool_name": "name",
        "args": "input",
    },
    "tool-return": {"tool_call_id": "tool_use_id"},
}
"""The names in a block of the fields of a part; all others keep theirs."""

_OWN_NAMES: Final = {
    kind: {ours: theirs for theirs, ours in names.items()} for kind, names in _NAMES.items()
}
_WORDED: Final = ("system-prompt", "user-prompt", "retry-feedback", "retry-prompt")
"""Kinds of parts whose content is a text, or several items: a block each."""

_FAILED: Final = ("failed", "retried")
_PASSING: Final = frozenset(("timestamp", "metadata"))
"""Fields of a part that say when it was made, and what the program noted with it."""

_PROGRAM: Final[Any] = {
    "instructions": True,
    "metadata": True,
    "parts": {"__all__": {"metadata": True}},
}
"""Fields that a row leaves out: those in the request's system prompt, or sent to no model."""


def rows_of(messages: Sequence[ModelMessage], *, whole: bool = False) -> list[list[Row]]:
    """The rows of each message. ``whole``: with the program's metadata and the instructions.

    Values of a program that are no JSON are recorded as texts, but for ``whole``, which raises
    PydanticSerializationError.
    """
    if whole:
        dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        return [_rows(one) for one in dumped]
    dumped = ModelMessagesTypeAdapter.dump_python(
        list(messages), mode="json", exclude={"__all__": _PROGRAM}, fallback=str
    )
    return [[recordable(row) for row in _rows(one)] for one in dumped]


def _rows(message: dict[str, Any]) -> list[Row]:
    parts = message.pop("parts")
    fields = {name: value for name, value in message.items() if value not in (None, "complete", {})}
    if "usage" in fields:
        fields["usage"] = {name: value for name, value in fields["usage"].items() if value}
    if fields.pop("kind") == "response":
        content = [block for part in parts for block in _blocks(part)]
        return [{"role": "assistant", "content": content, FIELDS: fields}]
    rows: list[Row] = []
    for voice, group in groupby(parts, _voice):
        content = [block for part in group for block in _blocks(part)]
        row: Row = {"role": "system" if voice == "system" else "user", "content": content}
        if voice == "framework":
            row["metadata"] = {"source": "hook"}
        rows.append(row)
    rows = rows or [{"role": "user", "content": []}]
    rows[0][FIELDS] = fields
    return rows


def _voice(part: dict[str, Any]) -> str:
    kind = part["part_kind"]
    if kind == "system-prompt":
        return "system"
    if kind == "tool-return":
        return "tools"
    return "person" if kind in ("user-prompt", "speech") else "framework"


def _blocks(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A part as blocks: one, but for a prompt of several items."""
    kind = part["part_kind"]
    fields = {name: part[name] for name in part if part[name] is not None or name == "content"}
    if kind in _WORDED:
        content = fields.pop("content", "")
        if isinstance(content, str):
            yield {"type": "text", "text": content, **fields}
            return
        yield {"type": "text", "text": "", **fields, "items": len(content)}
        yield from (_item(one) for one in content)
        return
    names = _NAMES.get(kind, {})
    block = {names.get(name, name): value for name, value in fields.items()}
    if fields.get("outcome") in _FAILED:
        block["is_error"] = True
    yield {"type": _TYPES.get(kind, kind), **block}


def _item(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if item.get("kind") == "text-content":
        return {
            "type": "text",
            "text": item["content"],
            **{k: item[k] for k in item if k != "content"},
        }
    return dict(item)


def identity(row: Mapping[str, Any]) -> Hashable:
    """The identity of a row: without times, and the fields of its message."""
    content = row["content"]
    if isinstance(content, list):
        content = [{k: one[k] for k in one if k not in _PASSING} for one in content]
    return plain_identity({"role": row["role"], "content": content})


# -- back ----------------------------------------------------------------------------------------


def messages_of(rows: Sequence[Row]) -> list[ModelMessage]:
    """Rows as messages: those of one message joined, and texts that the engine inserted."""
    if not rows:
        return []
    made: list[dict[str, Any]] = []
    names: dict[Any, Any] = {}
    for row in rows:
        kind = "response" if row["role"] == "assistant" else "request"
        parts = list(_parts(row, names))
        if FIELDS not in row and kind == "request" and made and made[-1]["kind"] == kind:
            made[-1]["parts"] += parts
        else:
            made.append({"kind": kind, "parts": parts, **row.get(FIELDS, {})})
    return ModelMessagesTypeAdapter.validate_python(made)


def _parts(row: Row, names: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a row. ``names`` are the tools of the calls so far, by the calls' ids."""
    content = row["content"]
    if isinstance(content, str):
        of_role = {"assistant": "text", "system": "system-prompt"}
        yield {"part_kind": of_role.get(row["role"], "user-prompt"), "content": content}
        return
    blocks = list(content)
    while blocks:
        block: Row = dict(blocks.pop(0))
        kind: str = block.get("part_kind") or _kind_of_block(block, row["role"])
        if block.get("type") == "tool_use":
            names[block["id"]] = block["name"]
        if kind in _WORDED:
            block.pop("type", None)
            listed = block.pop("items", None) is not None
            text = block.pop("text", "")
            items = [text] if not listed or text else []
            while (
                blocks and "part_kind" not in blocks[0] and blocks[0].get("type") != "tool_result"
            ):
                items.append(_item_back(blocks.pop(0)))
                listed = True
            yield {**block, "part_kind": kind, "content": items if listed else text}
            continue
        if _TYPES.get(kind) == block.get("type") or kind == block.get("type"):
            block.pop("type")
        block.pop("is_error", None)
        own = _OWN_NAMES.get(kind, {})
        part = {own.get(name, name): value for name, value in block.items()}
        if kind == "tool-return":
            part.setdefault("tool_name", names.get(part.get("tool_call_id", ""), "unknown"))
        yield {**part, "part_kind": kind}


def _kind_of_block(block: dict[str, Any], role: str) -> str:
    """The kind of part for a block that the engine made, or whose head it took away."""
    found = {ours: kind for kind, ours in _TYPES.items()}.get(block.get("type", ""), "text")
    return found if found != "text" or role == "assistant" else "user-prompt"


def _item_back(block: dict[str, Any]) -> Any:
    if block.get("type") != "text":
        return block
    if block.get("kind") == "text-content":
        fields = {name: value for name, value in block.items() if name not in ("type", "text")}
        return {"content": block["text"], **fields}
    return block["text"]


class MessageRows:
    """The rows of the messages that a run holds, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ModelMessage, list[Any], list[Row]]] = {}

    def of(self, messages: Sequence[ModelMessage]) -> list[Row]:
        """The messages' rows; those of messages that are not among them are forgotten."""
        new = [one for one in messages if not self._knows(one)]
        made = {
            id(one): (one, _copies(one), rows) for one, rows in zip(new, rows_of(new), strict=True)
        }
        self._made = {id(one): made.get(id(one)) or self._made[id(one)] for one in messages}
        return [row for one in messages for row in self._made[id(one)][2]]

    def then(self, message: ModelMessage) -> list[Row]:
        """The rows of the messages given last, and of one that follows them."""
        (rows,) = rows_of([message])
        self._made[id(message)] = (message, _copies(message), rows)
        return [row for _, _, own in self._made.values() for row in own]

    def _knows(self, message: ModelMessage) -> bool:
        """Whether the rows are known, and no part has been replaced or changed since."""
        known = self._made.get(id(message))
        # Lists of dicts of the same objects are compared quickly, as this is done with each call.
        return (
            known is not None
            and known[0] is message
            and [vars(part) for part in message.parts] == known[1]
        )

    def messages_of(self, rows: Sequence[Row]) -> list[ModelMessage]:
        """Rows of a view as messages; those that a message was made of are that very message."""
        made = [(message, own) for message, _, own in self._made.values()]
        heads: dict[Hashable, list[int]] = {}
        found: list[ModelMessage] = []
        changed: list[Row] = []
        at = place = 0
        while at < len(rows):
            if place == len(made) or not _is_at(made[place][1], rows, at):
                heads = heads or _heads(own for _, own in made)
                same = heads.get(_key(rows[at]), ())
                place = next((one for one in same if _is_at(made[one][1], rows, at)), len(made))
            if place == len(made):
                changed.append(_without_item_ids(rows[at]))
                at += 1
                continue
            found += messages_of(changed)
            changed.clear()
            found.append(made[place][0])
            at += len(made[place][1])
            place += 1
        return found + messages_of(changed)


def _without_item_ids(row: Row) -> Row:
    """A row that the view changed, without the ids of the Responses API if it has no reasoning.

    The API refuses an item by its id without the reasoning that it was made with, and takes it
    without the id.
    """
    content = row["content"]
    answer = row["role"] == "assistant" and isinstance(content, list)
    if not answer or any(block.get("type") == "thinking" for block in content):
        return row
    return {**row, "content": [_without_item_id(block) for block in content]}


def _without_item_id(block: dict[str, Any]) -> dict[str, Any]:
    name = {"text": "id", "tool_use": "item_id"}.get(block["type"])
    return {key: value for key, value in block.items() if key != name}


def _copies(message: ModelMessage) -> list[Any]:
    return [dict(vars(part)) for part in message.parts]


def _is_at(own: list[Row], rows: Sequence[Row], at: int) -> bool:
    """Whether the rows of a message stand at a place."""
    return own[0] == rows[at] and own == rows[at : at + len(own)]


def _heads(messages: Iterable[list[Row]]) -> dict[Hashable, list[int]]:
    """The places of messages, by the keys of their first rows."""
    found: dict[Hashable, list[int]] = {}
    for place, own in enumerate(messages):
        found.setdefault(_key(own[0]), []).append(place)
    return found


def _key(row: Row) -> Hashable:
    """A cheap part of what a row says, by which the few that may be equal are found."""
    content = row["content"]
    fields = row.get(FIELDS)
    first = content[0] if isinstance(content, list) and content else {}
    times = (first.get("timestamp"), None if fields is None else fields.get("timestamp"))
    return row["role"], len(content), times, isinstance(content, str)


def tool_definitions(parameters: Any) -> list[Row]:
    """The definitions of a request's tools, those that return its output included."""
    return [
        {
            "name": tool.name,
            "description": tool.description or "",
            "input_schema": tool.parameters_json_schema,
        }
        for tool in (*parameters.function_tools, *parameters.output_tools)
    ]
