"""Rows of a context as Amplifier's ``Message`` objects, whatever dialect they are in.

Amplifier's own rows pass as they are. Of the others the parts are put into Amplifier's words: calls
become ``tool_call`` blocks, results rows in role ``tool``, and what it has no word for its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from eventctx.messages.encoding import encode_message

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
_TEXTS: Final = frozenset(("input_text", "output_text", "refusal"))


def as_messages(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """``Message`` objects for the rows, in order; one with several tool results becomes several."""
    from amplifier_core.message_models import Message

    made: list[Any] = []
    for row in rows:
        try:
            message = None if _calls_functions(row) else Message(**row)
        except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
            message = None
        made += [Message(**one) for one in converted(row)] if message is None else [message]
    return made


def _calls_functions(row: dict[str, Any]) -> bool:
    """Whether calls are in OpenAI's form: ``Message`` takes them, and no provider reads them."""
    calls = row.get("tool_calls")
    return isinstance(calls, list) and any("function" in one for one in calls)


def converted(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of another dialect in Amplifier's."""
    if "role" not in row:
        return [_item(row)]
    role = row["role"] if row["role"] in _ROLES else "user"
    content = row.get("content")
    if role in ("tool", "function"):
        kept = {name: row[name] for name in ("tool_call_id", "name") if row.get(name) is not None}
        return [{"role": "tool", "content": _as_text(content), **kept}]
    if isinstance(content, str) and not row.get("tool_calls"):
        return [{"role": role, "content": content}]
    parts = content if isinstance(content, list) else [content] if content else []
    results = [_result(one) for one in parts if _is_result(one)]
    blocks = [_block(one) for one in parts if not _is_result(one)]
    calls = [_call(one) for one in row.get("tool_calls") or () if isinstance(one, dict)]
    known = {one["id"] for one in blocks if one["type"] == "tool_call"}
    blocks += [one for one in calls if one["id"] not in known]
    if not blocks:
        return results or [{"role": role, "content": ""}]
    message: dict[str, Any] = {"role": role, "content": blocks}
    made = [one for one in blocks if one["type"] == "tool_call"]
    if made:
        message["tool_calls"] = [
            {"id": one["id"], "tool": one["name"], "arguments": one["input"]} for one in made
        ]
    return [*results, message]


def _item(item: dict[str, Any]) -> dict[str, Any]:
    """An item of OpenAI's Responses that has a type where others have a role."""
    kind = item.get("type")
    if kind == "function_call":
        call = {"id": item.get("call_id"), "function": item}
        return converted({"role": "assistant", "content": [], "tool_calls": [call]})[0]
    if kind == "function_call_output":
        call_id = str(item.get("call_id"))
        return {"role": "tool", "tool_call_id": call_id, "content": _as_text(item.get("output"))}
    return {"role": "assistant", "content": [_block(item)]}


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result" and "tool_use_id" in part


def _result(part: dict[str, Any]) -> dict[str, Any]:
    text = _as_text(part.get("content"))
    return {"role": "tool", "tool_call_id": str(part["tool_use_id"]), "content": text}


def _block(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {"type": "text", "text": part if isinstance(part, str) else json.dumps(part)}
    kind = part.get("type")
    if kind == "tool_use":
        given = part.get("input")
        arguments = given if isinstance(given, dict) else {}
        return {
            "type": "tool_call",
            "id": str(part.get("id")),
            "name": str(part.get("name")),
            "input": arguments,
        }
    if kind in _TEXTS:
        return {"type": "text", "text": str(part.get("text", part.get("refusal", "")))}
    if kind == "image_url":
        return {"type": "image", "source": _source(part.get("image_url"))}
    if kind == "reasoning":
        return {"content": [], "summary": [], **part}
    if kind in _KNOWN and all(name in part for name in _KNOWN[kind]):
        return part
    return {"type": "text", "text": encode_message(part).decode()}


def _source(image: Any) -> dict[str, Any]:
    url = str(image.get("url") if isinstance(image, dict) else image)
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "url", "url": url}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A call of OpenAI chat's ``tool_calls``, or of Amplifier's."""
    function = call.get("function")
    of = function if isinstance(function, dict) else call
    arguments = of.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"arguments": arguments}
    return {
        "type": "tool_call",
        "id": str(call.get("id")),
        "name": str(of.get("name", of.get("tool"))),
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
