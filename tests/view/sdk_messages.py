"""Hypothesis strategies for messages of every type that the installed SDKs know, by reflection.

A block is drawn from the types of the SDK (``TypedDict``s), so a new release brings its new blocks
by itself. Ids come from a small pool: they meet, miss each other and are used again.
"""

from __future__ import annotations

import base64
import collections.abc
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import anthropic.types as claude
import openai.types.chat as chat
import openai.types.responses as responses
import typing_extensions
from hypothesis import strategies as st

Row = dict[str, Any]
Rows = st.SearchStrategy[list[Row]]

TEXTS: Final = st.sampled_from(["", " ", "\n", "Yes.", "Look at `a.py`.", "x" * 400])
NUMBERS: Final = st.integers(0, 5)

_PNG: Final = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
_REQUIRED: Final = (typing_extensions.Required, typing.Required)
_NOT_REQUIRED: Final = (typing_extensions.NotRequired, typing.NotRequired)
_WANTED: Final = ("content", "is_error", "encrypted_content", "status")
"""Fields that are drawn although a type can do without them."""


def _value(kind: Any, field: str, depth: int) -> st.SearchStrategy[Any]:
    """Values of an annotation; ``field`` names the key that has it."""
    origin, given = get_origin(kind), get_args(kind)
    if origin in (*_REQUIRED, *_NOT_REQUIRED):
        return _value(given[0], field, depth)
    if origin is Literal:
        return st.sampled_from(given)
    if origin in (types.UnionType, typing.Union):
        usable = [one for one in given if one is not type(None)]
        return st.one_of([_value(one, field, depth) for one in usable])
    if typing_extensions.is_typeddict(kind):
        return fields(kind, depth + 1)
    if kind is str:
        return st.just(_PNG) if field == "data" else st.sampled_from(["Yes.", "x" * 400])
    if kind in (int, float, bool):
        return st.just(kind(1))
    if origin in (dict, collections.abc.Mapping):
        return st.just({"path": "a.py"})
    if given:  # a list of something
        return st.lists(_value(given[0], field, depth + 1), max_size=2 if depth < 3 else 0)
    return st.just({})


def fields(kind: Any, depth: int = 0) -> st.SearchStrategy[Row]:
    """Dicts of a ``TypedDict``, with the fields that it needs and some others."""
    hints = get_type_hints(kind, include_extras=True)
    wanted = [
        name
        for name, one in hints.items()
        if get_origin(one) in _REQUIRED or name in kind.__required_keys__ or name in _WANTED
    ]
    return st.fixed_dictionaries({name: _value(hints[name], name, depth) for name in wanted})


def name_of(kind: Any, field: str = "type") -> str:
    """The value of the field by which a ``TypedDict`` is told from others."""
    hint = get_type_hints(kind, include_extras=True).get(field)
    while get_origin(hint) is not None and get_origin(hint) is not Literal:
        hint = get_args(hint)[0]
    return str(get_args(hint)[0]) if get_origin(hint) is Literal else ""


# -- Anthropic -----------------------------------------------------------------------------------

_TOOLS_OF_SERVER: Final = {
    f"{name}_tool_result": name
    for name in ("web_search", "web_fetch", "code_execution", "bash_code_execution")
} | {
    "text_editor_code_execution_tool_result": "text_editor_code_execution",
    "tool_search_tool_result": "tool_search_tool_bm25",
}
_OF_MODEL: Final = {"thinking", "redacted_thinking", "tool_use", "server_tool_use"}


def _claude_block(block: Row, number: int, text: str) -> Row:
    """The block with ids of the pool; those of a server's tools say which tool they are of."""
    match block["type"]:
        case "tool_use":
            return {**block, "id": f"toolu_{number % 3}", "name": "read"}
        case "tool_result":
            return {**block, "tool_use_id": f"toolu_{number % 3}"}
        case "server_tool_use":
            return {**block, "id": f"srvtoolu_{block['name']}_{number % 2}"}
        case "text":
            return {"type": "text", "text": text}
        case "thinking":
            return {"type": "thinking", "thinking": "hm", "signature": f"c2ln{number}"}
        case kind if kind in _TOOLS_OF_SERVER:
            return {**block, "tool_use_id": f"srvtoolu_{_TOOLS_OF_SERVER[kind]}_{number % 2}"}
    return block


def _claude_blocks(of_model: bool) -> st.SearchStrategy[Row]:
    kinds = get_args(claude.ContentBlockParam)
    usable = [
        kind
        for kind in kinds
        if name_of(kind) == "text"
        or (name_of(kind) in _OF_MODEL | _TOOLS_OF_SERVER.keys()) == of_model
    ]
    return st.builds(_claude_block, st.one_of([fields(kind) for kind in usable]), NUMBERS, TEXTS)


def _row(role: str) -> Callable[[Any], Row]:
    return lambda content: {"role": role, "content": content}


def claude_rows() -> Rows:
    """A conversation of Anthropic's API: any blocks in any order, as no API would have made it."""
    person = st.builds(_row("user"), st.lists(_claude_blocks(of_model=False), max_size=4))
    model = st.builds(_row("assistant"), st.lists(_claude_blocks(of_model=True), max_size=4))
    words = st.builds(_row("user"), TEXTS)
    return st.lists(st.one_of(words, person, model, model), min_size=1, max_size=14)


# -- OpenAI --------------------------------------------------------------------------------------

_PREFIXES: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs"}


def _item(item: Row, number: int) -> Row:
    """The item with ids of the pool."""
    kind = item.get("type", "message")
    made = dict(item)
    if "call_id" in made or str(kind).endswith("_output"):
        made["call_id"] = f"{'custom' if 'custom' in kind else 'call'}_{number % 3}"
    if "id" in made and kind in _PREFIXES:
        made["id"] = f"{_PREFIXES[kind]}_{number % 3}"
    if "name" in made:
        made["name"] = "read"
    if kind == "function_call":
        made["arguments"] = "{}"
    return made


_ITEMS: Final = (
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "custom_tool_call",
)
"""The items whose rules a view has to keep by itself; what a server's tools did passes through."""


def response_rows() -> Rows:
    """Items of the Responses API in any order."""
    kinds = [kind for kind in get_args(responses.ResponseInputItemParam) if name_of(kind) in _ITEMS]
    items = st.builds(_item, st.one_of([fields(kind) for kind in kinds]), NUMBERS)
    words = st.builds(_row("user"), st.just("Go on."))
    return st.lists(st.one_of(words, items, items), min_size=1, max_size=14)


def _chat_row(row: Row, numbers: list[int], text: str, calls: bool) -> Row:
    role = row["role"]
    ids = [f"call_{number}" if number else "" for number in numbers]  # some servers leave it empty
    if role == "tool":
        return {"role": "tool", "tool_call_id": ids[0], "content": text}
    if role != "assistant":
        return {"role": "user", "content": row["content"] or text}
    function = {"name": "read", "arguments": "{}"}
    made = [{"id": one, "type": "function", "function": function} for one in ids[1:]]
    return {"role": "assistant", "content": text or None, **({"tool_calls": made} if calls else {})}


def chat_rows() -> Rows:
    """Messages of the chat API in any order, with lists of calls that may be empty."""
    kinds = [
        kind
        for kind in get_args(chat.ChatCompletionMessageParam)
        if name_of(kind, "role") in ("user", "assistant", "tool")
    ]
    numbers = st.lists(st.integers(0, 2), min_size=1, max_size=4)
    row = st.builds(
        _chat_row, st.one_of([fields(kind) for kind in kinds]), numbers, TEXTS, st.booleans()
    )
    return st.lists(row, min_size=1, max_size=14)
