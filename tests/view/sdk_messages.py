"""Hypothesis strategies for messages of every type that the installed SDKs know, by reflection.

A block is drawn from the types of the SDK (``TypedDict``s), so a new release brings its new blocks
by itself. Ids come from a small pool: they meet, miss each other and are used again.
"""

from __future__ import annotations

import base64
import types
from collections.abc import Iterable
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import anthropic.types as claude
import typing_extensions
from hypothesis import strategies as st

Row = dict[str, Any]

_PNG: Final = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
_TEXTS: Final = st.sampled_from(["", " ", "\n", "Yes.", "Look at `a.py`.", "x" * 400])
_ANSWERS_BY_KIND: Final = {
    "web_search_tool_result": "web_search",
    "web_fetch_tool_result": "web_fetch",
    "code_execution_tool_result": "code_execution",
    "bash_code_execution_tool_result": "bash_code_execution",
    "text_editor_code_execution_tool_result": "text_editor_code_execution",
    "tool_search_tool_result": "tool_search_tool_bm25",
}
_OF_MODEL: Final = ("thinking", "redacted_thinking", "tool_use", "server_tool_use")
_OF_BOTH: Final = ("text",)


def _value(kind: Any, field: str, depth: int) -> st.SearchStrategy[Any]:
    """Values of an annotation; ``field`` names the key that has it."""
    origin, given = get_origin(kind), get_args(kind)
    if origin in (typing_extensions.Required, typing_extensions.NotRequired):
        return _value(given[0], field, depth)
    if origin is Literal:
        return st.sampled_from(given)
    if origin in (types.UnionType, __import__("typing").Union):
        usable = [one for one in given if one is not type(None)]
        return st.one_of([_value(one, field, depth) for one in usable])
    if typing_extensions.is_typeddict(kind):
        return _fields(kind, depth + 1)
    if kind is str:
        return st.just(_PNG) if field == "data" else _TEXTS.filter(str.strip)
    if kind in (int, float, bool):
        return st.just(kind(1))
    if origin in (dict, __import__("collections").abc.Mapping):
        return st.just({"path": "a.py"})
    if given:  # a list of something
        return st.lists(_value(given[0], field, depth + 1), max_size=2 if depth < 3 else 0)
    return st.just({})


def _fields(kind: Any, depth: int) -> st.SearchStrategy[Row]:
    """Dicts of a ``TypedDict`` with the fields that it needs, and ``is_error`` if it has that."""
    hints = get_type_hints(kind, include_extras=True)
    wanted = [
        name
        for name, one in hints.items()
        if get_origin(one) is typing_extensions.Required
        or name in kind.__required_keys__
        or name in ("content", "is_error")
    ]
    return st.fixed_dictionaries({name: _value(hints[name], name, depth) for name in wanted})


def _identified(block: Row, number: int) -> Row:
    """The block with ids of the pool; those of a server's tools say which tool they are of."""
    kind = block["type"]
    if kind == "tool_use":
        return {**block, "id": f"toolu_{number % 3}", "name": "read"}
    if kind == "tool_result":
        return {**block, "tool_use_id": f"toolu_{number % 3}"}
    if kind == "server_tool_use":
        return {**block, "id": f"srvtoolu_{block['name']}_{number % 2}"}
    if kind in _ANSWERS_BY_KIND:
        return {**block, "tool_use_id": f"srvtoolu_{_ANSWERS_BY_KIND[kind]}_{number % 2}"}
    if kind == "text":
        return block
    if kind == "thinking":
        return {"type": kind, "thinking": "hm", "signature": f"c2ln{number}"}
    return block


def _blocks(of_model: bool) -> st.SearchStrategy[Row]:
    found = []
    for kind in get_args(claude.ContentBlockParam):
        (name,) = get_args(get_args(get_type_hints(kind, include_extras=True)["type"])[0])
        models = name in _OF_MODEL or name in _ANSWERS_BY_KIND
        if name in _OF_BOTH or models == of_model:
            strategy = _fields(kind, 0)
            if name == "text":
                strategy = st.builds(lambda text: {"type": "text", "text": text}, _TEXTS)
            found.append(strategy)
    return st.builds(_identified, st.one_of(found), st.integers(0, 5))


def claude_rows() -> st.SearchStrategy[list[Row]]:
    """A conversation of Anthropic's API: any blocks in any order, as no API would have made it."""
    text = st.builds(lambda words: {"role": "user", "content": words}, _TEXTS)
    person = st.builds(_row("user"), st.lists(_blocks(of_model=False), max_size=4))
    model = st.builds(_row("assistant"), st.lists(_blocks(of_model=True), max_size=4))
    return st.lists(st.one_of(text, person, model, model), min_size=1, max_size=14)


def _row(role: str) -> Any:
    return lambda blocks: {"role": role, "content": blocks}


def listed(found: Iterable[Any]) -> list[Any]:
    """A list of what was found."""
    return list(found)
