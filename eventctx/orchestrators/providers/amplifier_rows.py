"""Rows of a context as Amplifier's ``Message`` objects, whatever dialect they are in.

Amplifier's own rows pass as they are. Of the others the parts are put into Amplifier's words: calls
become ``tool_call`` blocks, results rows in role ``tool``, and what it has no word for its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventctx.messages.parts import Part, read_parts, role_of

_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "function", "tool"))
_KNOWN: Final = {
    "text": ("text",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
    "tool_call": ("id", "name", "input"),
    "tool_result": ("tool_call_id", "output"),
    "image": ("source",),
    "reasoning": ("content", "summary"),
}
"""Amplifier's blocks and the fields that each must have (``amplifier_core.message_models``)."""


def as_messages(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """``Message`` objects for the rows, in order; one with several tool results becomes several."""
    from amplifier_core.message_models import Message

    made: list[Any] = []
    for row in rows:
        try:
            message = None if _is_chat(row) else Message(**row)
        except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
            message = None
        made += [Message(**one) for one in converted(row)] if message is None else [message]
    return made


def _is_chat(row: dict[str, Any]) -> bool:
    """Whether calls or a refusal are OpenAI's: `Message` takes them, and nobody reads them."""
    calls = row.get("tool_calls")
    functions = isinstance(calls, list) and any("function" in one for one in calls)
    return functions or bool(row.get("refusal"))


def converted(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of another dialect in Amplifier's."""
    given = role_of(row) or "assistant"
    role = given if given in _ROLES else "user"
    parts = read_parts(row)
    if role in ("tool", "function"):
        return [_result(part) for part in parts if part.kind == "result"]
    if "role" not in row and row.get("type") == "reasoning":
        return [{"role": role, "content": [_reasoning(row)]}]
    if len(parts) == 1 and parts[0].place == ("content",) and parts[0].kind == "text":
        return [{"role": role, "content": parts[0].value}]
    results = [_result(part) for part in parts if _is_result(part)]
    # Reasoning beside the content has no signature, without which nobody takes it back.
    shown = [part for part in parts if part.kind != "thinking" or part.place[0] == "content"]
    blocks = [_block(part, row) for part in shown if not _is_result(part)]
    if not blocks:
        return results or [{"role": role, "content": ""}]
    message: dict[str, Any] = {"role": role, "content": blocks}
    made = [one for one in blocks if one["type"] == "tool_call"]
    if made:
        message["tool_calls"] = [
            {"id": one["id"], "tool": one["name"], "arguments": one["input"]} for one in made
        ]
    return [*results, message]


def _is_result(part: Part) -> bool:
    return part.kind == "result" and part.dialect != "amplifier"


def _result(part: Part) -> dict[str, Any]:
    row = {"role": "tool", "content": _as_text(part.value)}
    if part.ids:
        row["tool_call_id"] = part.ids[0]
    return row if part.name is None else {**row, "name": part.name}


def _block(part: Part, row: dict[str, Any]) -> dict[str, Any]:
    if part.kind == "call":
        return _call(part)
    if part.kind == "image" and part.type == "image_url":
        return {"type": "image", "source": _source(part.value.get("image_url"))}
    raw: Any = row["content"][part.place[1]] if len(part.place) > 1 else part.value
    if part.type == "reasoning":
        return _reasoning(raw)
    fields = _KNOWN.get(part.type)
    if fields is not None and isinstance(raw, dict) and all(name in raw for name in fields):
        return raw
    words = part.kind in ("text", "refusal")
    return {"type": "text", "text": part.value if words else msgspec.json.encode(raw).decode()}


def _reasoning(block: dict[str, Any]) -> dict[str, Any]:
    return {"content": [], "summary": [], **block}


def _source(image: Any) -> dict[str, Any]:
    url = str(image.get("url") if isinstance(image, dict) else image)
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "url", "url": url}


def _call(part: Part) -> dict[str, Any]:
    arguments = part.value
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": arguments}
    return {
        "type": "tool_call",
        "id": part.ids[0],
        "name": part.name or "None",
        "input": arguments if isinstance(arguments, dict) else {},
    }


def _as_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = content if isinstance(content, list) else [content]
    texts = [
        one["text"]
        if isinstance(one, dict) and isinstance(one.get("text"), str)
        else json.dumps(one, ensure_ascii=False)
        for one in parts
    ]
    return "\n".join(texts)
