"""Messages of Microsoft Agent Framework as rows of the log, and back.

A content becomes a block with its own fields; those that the engine reads have the names that it
knows, and there is one copy of each. A row that the view shows whole goes back as the framework's
own object, with the provider's ``raw_representation``, which is in no row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from agent_framework import Content, FunctionTool, Message, normalize_tools

from eventctx.adapters.kit.host_list import plain_identity

Row = dict[str, Any]

FIELDS: Final = "agent_framework"
"""The key of a row under which the fields of its message stand: what is in no content."""

_TYPES: Final = {
    "text_reasoning": "thinking",
    "function_call": "tool_use",
    "function_result": "tool_result",
}
_NAMES: Final = {
    "text_reasoning": {"text": "thinking"},
    "function_call": {"call_id": "id", "arguments": "input"},
    "function_result": {"call_id": "tool_use_id"},
}
"""The names in a block of the fields of a content; all others keep theirs."""

_OWN_IDS: Final = ("function_call", "function_result")
"""Contents whose ``id`` the framework makes up after the answer, for itself."""

_KINDS: Final = {ours: theirs for theirs, ours in _TYPES.items()}
_OWN_NAMES: Final = {
    kind: {ours: theirs for theirs, ours in names.items()} for kind, names in _NAMES.items()
}
_IMAGES: Final = ("data", "uri")
_PASSING: Final = frozenset(("additional_properties", "annotations", "status"))
"""Fields of a block that the framework or a provider adds to a content that it has."""
_FAILED: Final = "FunctionInvocationError"
"""The text that the framework writes in a result in place of an exception."""


def rows_of(messages: Iterable[Message]) -> list[Row]:
    """The rows of messages, one each. Values of a program that are no JSON are texts in them."""
    return [_row(one, [_block(content) for content in one.contents]) for one in messages]


def _row(message: Message, blocks: list[dict[str, Any]], agent: str | None = None) -> Row:
    row: Row = {"role": "user" if message.role == "tool" else message.role, "content": blocks}
    own = {
        name: value
        for name, value in message.additional_properties.items()
        if not name.startswith("_")
    }
    fields = {
        "role": None if message.role == _role_of(row) else message.role,
        "author_name": None if message.author_name == agent else message.author_name,
        "message_id": message.message_id,
        "additional_properties": _plain(own) if own else None,
    }
    found = {name: value for name, value in fields.items() if value is not None}
    return {**row, FIELDS: found} if found else row


def _role_of(row: Row) -> str:
    """The role of the message that a row would become, if its fields do not say it."""
    content = row["content"]
    results = isinstance(content, list) and any(one.get("type") == "tool_result" for one in content)
    return "tool" if results else str(row["role"])


def _block(content: Content) -> dict[str, Any]:
    given = content.to_dict()
    if not given.get("additional_properties"):
        given.pop("additional_properties", None)
    fields = _plain(given)
    kind = fields.pop("type")
    if kind in _OWN_IDS:
        fields.pop("id", None)
    if kind == "function_result":
        return _result(fields)
    if kind in _IMAGES and str(fields.get("media_type", "")).startswith("image/"):
        image = {"url": fields.pop("uri", "")}
        return {"type": "image_url", "image_url": image, "content": kind, **fields}
    names = _NAMES.get(kind, {})
    return {
        "type": _TYPES.get(kind, kind),
        **{names.get(name, name): value for name, value in fields.items()},
    }


def _result(fields: dict[str, Any]) -> dict[str, Any]:
    """A result: its items, or the text that they are. The framework holds both."""
    text = fields.pop("result", "")
    items = [Content.from_dict(one) for one in fields.pop("items", None) or []]
    blocks = [_block(one) for one in items]
    alone = not blocks or (len(blocks) == 1 and blocks[0].keys() == {"type", "text"})
    names = _NAMES["function_result"]
    block = {names.get(name, name): value for name, value in fields.items()}
    said: Any = blocks
    if alone:
        said = blocks[0]["text"] if blocks else text
    failed = {"is_error": True} if block.get("exception") is not None else {}
    return {"type": "tool_result", "content": said, **block, **failed}


def _plain(value: Any) -> Any:
    """A value as JSON holds it; what it cannot hold is a text."""
    return msgspec.to_builtins(value, builtin_types=(), str_keys=True, enc_hook=str)


def identity(row: Mapping[str, Any]) -> Hashable:
    """The identity of a row: without ids and names that the framework adds to a message later."""
    content = row["content"]
    if isinstance(content, list):
        content = [{k: one[k] for k in one if k not in _PASSING} for one in content]
    return plain_identity({"role": row["role"], "content": content})


# -- back ----------------------------------------------------------------------------------------


def messages_of(rows: Iterable[Row]) -> list[Message]:
    """Rows as messages: also those that a view shortened, and texts that the engine inserted."""
    return [_message(row) for row in rows]


def _message(row: Row) -> Message:
    content, fields = row["content"], dict(row.get(FIELDS, {}))
    role = fields.pop("role", None) or _role_of(row)
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not any(one.get("type") == "thinking" for one in blocks):
        blocks = [_without_item_id(one) for one in blocks]
    return Message(role, [_content(one) for one in blocks], **fields)


def _without_item_id(block: dict[str, Any]) -> dict[str, Any]:
    """A block of a message without reasoning, without the id of its item of the Responses API.

    The API refuses an item by its id without the reasoning that it was made with, and takes it
    without the id. The client's classes keep the id among a call's properties, under two names.
    """
    properties = block.get("additional_properties")
    if block.get("type") != "tool_use" or not isinstance(properties, dict):
        return block
    kept = {name: value for name, value in properties.items() if name != "fc_id"}
    if isinstance(openai := kept.get("openai"), dict):
        kept["openai"] = {name: value for name, value in openai.items() if name != "item_id"}
    return {**block, "additional_properties": kept}


def _content(block: dict[str, Any]) -> Content:
    fields = dict(block)
    kind = fields.pop("type", "text")
    if kind == "image_url":
        return Content.from_dict(
            {"type": fields.pop("content", "uri"), "uri": fields.pop("image_url")["url"], **fields}
        )
    kind = _KINDS.get(kind, kind)
    own = _OWN_NAMES.get(kind, {})
    given = {own.get(name, name): value for name, value in fields.items()}
    if kind != "function_result":
        return Content.from_dict({"type": kind, **given})
    if given.pop("is_error", False):
        given.setdefault("exception", _FAILED)
    said = given.pop("content", "")
    return Content.from_function_result(
        given.pop("call_id"),
        result=[_content(one) for one in said] if isinstance(said, list) else said,
        **given,
    )


class KnownContents:
    """The rows of the messages that a run holds. A content is read once.

    The framework copies messages between runs, and keeps their contents.
    """

    agent: str | None = None
    """The agent's name, which the framework writes on answers after the run; no row has it."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Content, dict[str, Any], dict[str, Any]]] = {}
        self._made: list[tuple[Message, Row]] = []

    def of(self, messages: Sequence[Message]) -> list[Row]:
        """The messages' rows; those of messages that are not among them are forgotten."""
        before, self._read = self._read, {}
        self._made = [(one, self._row(one, before)) for one in messages]
        return [row for _, row in self._made]

    def then(self, messages: Sequence[Message]) -> list[Row]:
        """The rows of messages that follow those given last."""
        made = [(one, self._row(one, self._read)) for one in messages]
        self._made += made
        return [row for _, row in made]

    def read(self, messages: Sequence[Message]) -> list[Row]:
        """The rows of messages, as far as they are known already; none are remembered."""
        return [self._row(one, self._read) for one in messages]

    def _row(
        self,
        message: Message,
        before: Mapping[int, tuple[Content, dict[str, Any], dict[str, Any]]],
    ) -> Row:
        blocks = []
        for content in message.contents:
            known = before.get(id(content))
            # Looked at again each time, as a middleware may have changed it in its place.
            if known is None or known[0] is not content or vars(content) != known[1]:
                known = (content, dict(vars(content)), _block(content))
            self._read[id(content)] = known
            blocks.append(known[2])
        return _row(message, blocks, self.agent)

    def messages_of(self, rows: Sequence[Row]) -> list[Message]:
        """Rows of a view as messages; those that were made of a message are that message."""
        places: dict[Hashable, list[int]] | None = None
        found: list[Message] = []
        start = 0
        for row in rows:
            # Views keep the order: mostly the next row is the next message, which costs no digest.
            if start < len(self._made) and self._made[start][1] == row:
                place: int | None = start
            else:
                if places is None:
                    places = self._places()
                same = places.get(identity(row), [])
                place = next((one for one in same if one >= start), None)
            found.append(_message(row) if place is None else self._made[place][0])
            start = start if place is None else place + 1
        return found

    def _places(self) -> dict[Hashable, list[int]]:
        found: dict[Hashable, list[int]] = {}
        for place, (_, row) in enumerate(self._made):
            found.setdefault(identity(row), []).append(place)
        return found


# -- instructions and tools ----------------------------------------------------------------------


def instructions_of(options: Mapping[str, Any]) -> str | None:
    """The instructions of a request; None without any."""
    given = options.get("instructions")
    if given is None or isinstance(given, str):
        return given or None
    return "\n".join([str(one) for one in given]) or None


def tool_definitions(options: Mapping[str, Any]) -> list[Row]:
    """The definitions of a request's functions, and those of hosted tools that are dicts."""
    found: list[Row] = []
    for tool in normalize_tools(options.get("tools")):
        if isinstance(tool, FunctionTool):
            found.append(_plain(tool.to_json_schema_spec()))
        elif isinstance(tool, Mapping):
            found.append(_plain(dict(tool)))
    return found
