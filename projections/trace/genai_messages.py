"""Messages of any dialect in the form of the GenAI conventions: a role and parts.

The forms are those of the conventions' JSON schemas for input and output messages (parts ``text``,
``tool_call``, ``tool_call_response``, ``reasoning``; anything else is a part of its own type).
Texts pass through ``clean``, which redacts, and long ones are cut: a trace is no copy of the log.
Signatures, encrypted reasoning and the bytes of images stay out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from eventctx.messages.parts import (
    SEALED,
    Part,
    hosted_arguments,
    parts_of_result,
    read_parts,
    role_of,
)

Clean = Callable[[str], str]

MAX_PART: Final = 16_384
"""Characters of one text in a part; the rest is counted."""
MARGIN: Final = 512
"""Characters beyond it that are redacted too, so that no part of a secret is left by the cut."""
_DEPTH: Final = 24

_HIDDEN: Final = frozenset(("signature", "encrypted_content", "data", "file_data", "image_url"))


def genai_message(message: dict[str, Any], clean: Clean) -> dict[str, Any]:
    """A message as ``{"role": …, "parts": […]}``; JSON values only, all of them new."""
    parts = [_part(part, clean) for part in read_parts(message) if part.type != "encrypted_content"]
    role = role_of(message) or "assistant"
    if role == "function" or (parts and all(one["type"] == "tool_call_response" for one in parts)):
        role = "tool"
    return {"role": role, "parts": parts}


def plain_text(value: object, clean: Clean) -> str:
    """A value as text: itself, the texts of a list of blocks, else compact JSON."""
    if isinstance(value, str):
        return _cut(value, clean)
    if isinstance(value, list) and value:
        inner = parts_of_result(Part("result", (), value))
        if len(inner) == len(value) and all(part.kind == "text" for part in inner):
            return _cut("\n".join([part.value for part in inner]), clean)
    return msgspec.json.encode(_cleaned(value, clean, _Room())).decode()


def _part(part: Part, clean: Clean) -> dict[str, Any]:
    value, call_id = part.value, part.ids[0] if part.ids else None
    match part.kind:
        case "text" | "refusal":
            return {"type": "text", "content": _cut(value, clean)}
        case "thinking" if part.type in SEALED:
            return {"type": part.type}
        case "thinking":
            return {"type": "reasoning", "content": _cut(value, clean)}
        case "call":
            return _call(call_id, part.name, value, clean)
        case "result":
            return _response(call_id, value, clean)
        case "hosted" if part.type.endswith("_tool_result"):
            return _response(call_id, value.get("content", value.get("output")), clean)
        case "hosted":
            return _call(call_id, part.name, hosted_arguments(part), clean)
        case "image" | "document":
            modality = part.type.removeprefix("input_").partition("_")[0]
            return {"type": "blob", "modality": modality}
        case _:
            return {"type": part.type or "unknown", "content": plain_text(value, clean)}


def _call(call_id: object, name: object, arguments: object, clean: Clean) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_call", "name": name if isinstance(name, str) else "?"}
    if isinstance(call_id, str):
        made["id"] = call_id
    made["arguments"] = plain_text("" if arguments is None else arguments, clean)
    return made


def _response(call_id: object, content: object, clean: Clean) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_call_response"}
    if isinstance(call_id, str):
        made["id"] = call_id
    made["response"] = plain_text("" if content is None else content, clean)
    return made


def _cut(text: str, clean: Clean) -> str:
    """The beginning of a text, redacted; what lies beyond is not looked at, however long it is."""
    # Clean first: a secret that is cut in two is no longer recognised, and half of it would leave.
    begin, kept = clean(text[: MAX_PART + MARGIN]), MAX_PART
    if len(text) <= MAX_PART + MARGIN:
        text = begin
        if len(text) <= MAX_PART:
            return text
    else:
        kept = min(MAX_PART, max(0, len(begin) - MARGIN))
    return f"{begin[:kept]}… [{len(text) - kept:,} characters more]"


class _Room:
    """How many characters of a nested value may still be shown."""

    def __init__(self) -> None:
        self.left = MAX_PART


def _cleaned(value: object, clean: Clean, room: _Room, depth: int = 0) -> object:
    room.left -= len(value) if isinstance(value, str) else 1
    if isinstance(value, str):
        return _cut(value, clean)
    if depth > _DEPTH:
        return "…"
    if isinstance(value, list):
        items: list[object] = []
        for item in value:
            if room.left <= 0:
                items.append(f"… [{len(value) - len(items):,} items more]")
                break
            items.append(_cleaned(item, clean, room, depth + 1))
        return items
    if isinstance(value, dict):
        fields: dict[str, object] = {}
        for key, item in value.items():
            if room.left <= 0:
                fields["…"] = f"[{len(value) - len(fields):,} fields more]"
                break
            room.left -= len(str(key))
            hidden = key in _HIDDEN
            name = _cut(str(key), clean)
            fields[name] = "…" if hidden else _cleaned(item, clean, room, depth + 1)
        return fields
    return value
