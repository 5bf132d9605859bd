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

from eventctx.messages.facts_reader import as_list

Clean = Callable[[str], str]

MAX_PART: Final = 16_384
"""Characters of one text in a part; the rest is counted."""
MARGIN: Final = 512
"""Characters beyond it that are redacted too, so that no part of a secret is left by the cut."""
_DEPTH: Final = 24

# Tuples: a host may put anything into "type", also what cannot be hashed.
_TEXTS: Final = ("text", "input_text", "output_text", "refusal")
_CALLS: Final = ("tool_use", "tool_call", "server_tool_use", "mcp_tool_use")
_SEALED: Final = ("redacted_thinking", "compaction")
_MEDIA: Final = ("image", "image_url", "input_image", "input_audio", "audio", "file", "document")
_HIDDEN: Final = frozenset(("signature", "encrypted_content", "data", "file_data", "image_url"))


def genai_message(message: dict[str, Any], clean: Clean) -> dict[str, Any]:
    """A message as ``{"role": …, "parts": […]}``; JSON values only, all of them new."""
    role = message.get("role")
    if not isinstance(role, str):
        return _item(message, clean)
    if role in ("tool", "function"):
        call_id = message.get("tool_call_id", message.get("name"))
        return {"role": "tool", "parts": [_response(call_id, message.get("content"), clean)]}
    content = message.get("content")
    parts = [
        part
        for block in (content if isinstance(content, list) else [content])
        if (part := _part(block, clean)) is not None
    ]
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        parts.insert(0, {"type": "reasoning", "content": _cut(reasoning, clean)})
    parts += _calls(message, {part.get("id") for part in parts}, clean)
    if parts and all(part["type"] == "tool_call_response" for part in parts):
        role = "tool"
    return {"role": role, "parts": parts}


def plain_text(value: object, clean: Clean) -> str:
    """A value as text: itself, the texts of a list of blocks, else compact JSON."""
    if isinstance(value, str):
        return _cut(value, clean)
    if isinstance(value, list) and value and all(_is_text(block) for block in value):
        return _cut("\n".join(block["text"] for block in value), clean)
    return msgspec.json.encode(_cleaned(value, clean, _Room())).decode()


def _is_text(block: object) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") in _TEXTS
        and isinstance(block.get("text"), str)
    )


def _part(block: object, clean: Clean) -> dict[str, Any] | None:
    if block is None:
        return None
    if isinstance(block, str):
        return {"type": "text", "content": _cut(block, clean)}
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        return {"type": "unknown", "content": plain_text(block, clean)}
    if kind in _TEXTS:
        text = block.get("text", block.get("refusal"))
        return {"type": "text", "content": plain_text(text, clean)}
    if kind in ("thinking", "reasoning"):
        return {
            "type": "reasoning",
            "content": plain_text(block.get("thinking", block.get("text", "")), clean),
        }
    if kind in _CALLS:
        arguments = block.get("input", block.get("arguments"))
        return _call(block.get("id"), block.get("name"), arguments, clean)
    if kind == "tool_result" or kind.endswith("_tool_result"):
        call_id = block.get("tool_use_id", block.get("tool_call_id"))
        return _response(call_id, block.get("content", block.get("output")), clean)
    if kind in _SEALED:
        return {"type": kind}
    if kind in _MEDIA:
        return {"type": "blob", "modality": kind.removeprefix("input_").partition("_")[0]}
    return {"type": kind, "content": plain_text(block, clean)}


def _calls(message: dict[str, Any], known: set[Any], clean: Clean) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for call in as_list(message.get("tool_calls")):
        if not isinstance(call, dict) or call.get("id") in known:
            continue  # Amplifier rows hold every call in two places
        function = call.get("function")
        named = function if isinstance(function, dict) else call
        arguments = named.get("arguments", named.get("args", named.get("input")))
        name = named.get("name", named.get("tool"))
        found.append(_call(call.get("id"), name, arguments, clean))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        found.append(_call(None, legacy.get("name"), legacy.get("arguments"), clean))
    return found


def _item(message: dict[str, Any], clean: Clean) -> dict[str, Any]:
    """An item of OpenAI's Responses API."""
    kind = message.get("type")
    call_id = message.get("call_id", message.get("id"))
    if "output" in message:
        return {"role": "tool", "parts": [_response(call_id, message["output"], clean)]}
    if kind == "reasoning":
        texts = [part.get("text") for part in as_list(message.get("summary")) if _is_summary(part)]
        text = "\n".join(text for text in texts if isinstance(text, str))
        parts = [{"type": "reasoning", "content": _cut(text, clean)}] if text else []
        return {"role": "assistant", "parts": parts}
    if kind in _SEALED:
        return {"role": "user", "parts": [{"type": kind}]}
    arguments = message.get("arguments", message.get("input", message.get("action")))
    return {
        "role": "assistant",
        "parts": [_call(call_id, message.get("name", kind), arguments, clean)],
    }


def _is_summary(part: object) -> bool:
    return isinstance(part, dict)


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
