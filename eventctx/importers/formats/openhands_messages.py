"""OpenHands' events as messages in OpenAI's chat dialect, as its SDK converts them.

Each function takes an event and returns its message and the keys of the event that are in it; the
rest of the event is kept beside the message. An event without the necessary keys gives None.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from eventctx.importers.source.lines import list_or_empty, object_or_empty, text_or_none, without
from eventctx.importers.source.values import encode

_THINKING: Final = (
    "reasoning_content",
    "thinking_blocks",
    "responses_reasoning_item",
    "reasoning_details",
)
_CALL: Final = ("id", "name", "arguments")


class Made(NamedTuple):
    """A message, and the keys of the event that are in it; ``rest`` replaces some of them."""

    message: dict[str, Any]
    used: tuple[str, ...]
    rest: dict[str, Any]
    failed: bool = False


def system_prompt(event: dict[str, Any]) -> Made | None:
    """The prompt, followed by the text for this conversation only. The tools are left out."""
    used = tuple(key for key in ("system_prompt", "dynamic_context") if event.get(key))
    if "system_prompt" not in used:
        return None
    content = [_text(event[key]) if isinstance(event[key], str) else event[key] for key in used]
    return Made({"role": "system", "content": content}, used, {})


def spoken(event: dict[str, Any]) -> Made | None:
    """A message of a person, the agent or the environment, with the texts that skills added."""
    message = event.get("llm_message")
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return None
    made = dict(message)
    extended = list_or_empty(event.get("extended_content"))
    content = message.get("content")
    if isinstance(content, list) or extended:
        before = [_text(content)] if isinstance(content, str) else list_or_empty(content)
        made["content"] = _blocks([*before, *extended])
    if isinstance(message.get("tool_calls"), list):
        made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    used = ("llm_message", "extended_content") if extended else ("llm_message",)
    return Made(made, used, {})


def action(event: dict[str, Any]) -> Made | None:
    """One call of the model's answer, with its thoughts."""
    call = object_or_empty(event.get("tool_call"))
    call_id = text_or_none(call.get("id")) or text_or_none(event.get("tool_call_id"))
    if call_id is None:
        return None
    arguments = call.get("arguments", event.get("action"))
    name = text_or_none(call.get("name")) or text_or_none(event.get("tool_name"))
    function = {**call, "id": call_id, "name": name, "arguments": arguments}
    thought = event.get("thought")
    content = [_text(thought)] if isinstance(thought, str) and thought else list_or_empty(thought)
    message = {"role": "assistant", "content": _blocks(content) or None}
    thinking = {key: event[key] for key in _THINKING if event.get(key)}
    message.update(thinking)
    message["tool_calls"] = [_call(function)]
    used = ("thought",) if content else ()
    # An id or a name of another type is in the event alone.
    said = [key for key in _CALL if key == "arguments" or call.get(key) == function[key]]
    rest = {"tool_call": without(call, *said)} if call else {}
    return Made(message, (*used, *thinking), rest)


def joined(first: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Two actions of one answer as one message; a thought repeated in both appears once."""
    message = dict(first)
    for key, value in more.items():
        if key == "role" or not value or first.get(key) == value:
            continue
        if isinstance(value, list):
            before = list_or_empty(first.get(key))
            message[key] = before + [one for one in value if one not in before]
        elif isinstance(value, str) and isinstance(first.get(key), str):
            message[key] = f"{first[key]}\n{value}"
        else:
            message.setdefault(key, value)
    return message


def observation(event: dict[str, Any]) -> Made | None:
    """A tool's result. Fields of its kind (exit codes, folders) are not in the message."""
    call_id, seen = text_or_none(event.get("tool_call_id")), event.get("observation")
    if call_id is None:
        return None
    rest: dict[str, Any] = {}
    if isinstance(seen, dict):
        content, keys = _seen(seen)
        rest = {"observation": without(seen, *keys)}
        failed = seen.get("is_error") is True or bool(seen.get("error"))
    else:
        content, failed = _shown(seen), False
    extended = list_or_empty(event.get("extended_content"))
    if extended:
        blocks = [_text(content)] if isinstance(content, str) else content
        content = [*blocks, *_blocks(extended)]
    used = ("observation", "extended_content") if extended else ("observation",)
    return Made(_result(event, call_id, content), used, rest, failed)


def failure(event: dict[str, Any]) -> Made | None:
    """The result of a call that could not be made, or that a person refused."""
    call_id, error = text_or_none(event.get("tool_call_id")), text_or_none(event.get("error"))
    reason = text_or_none(event.get("rejection_reason"))
    text = error if reason is None else f"Action rejected: {reason}"
    if call_id is None or text is None:
        return None
    used = ("error",) if reason is None else ("rejection_reason",)
    return Made(_result(event, call_id, text), used, {}, failed=True)


def summary_of(text: str) -> dict[str, Any]:
    """The message in place of forgotten events."""
    return {"role": "user", "content": [_text(text)]}


def _result(event: dict[str, Any], call_id: str, content: str | list[Any]) -> dict[str, Any]:
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    name = text_or_none(event.get("tool_name"))
    return message if name is None else {**message, "name": name}


def _seen(seen: dict[str, Any]) -> tuple[str | list[Any], tuple[str, ...]]:
    """The content of an observation and the keys that it comes from; older ones have a text."""
    if isinstance(seen.get("content"), list):
        return _blocks(seen["content"]), ("content",)
    if isinstance(seen.get("content"), str):
        return seen["content"], ("content",)
    if "output" not in seen and "error" not in seen:
        return _shown(without(seen, "kind")), ()
    used = [key for key in ("output", "error") if seen.get(key) not in (None, "")]
    text = "\n".join(_shown(seen[key]) for key in used)
    picture = seen.get("screenshot_data")
    if isinstance(picture, str) and picture:
        url = picture if picture.startswith("data:") else f"data:image/png;base64,{picture}"
        content = [_text(text), {"type": "image_url", "image_url": {"url": url}}]
        return content, (*used, "screenshot_data")
    return text, tuple(used)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(call: Any) -> Any:
    """A call in OpenAI's form, from the SDK's flat one."""
    if not isinstance(call, dict) or "function" in call or "name" not in call:
        return call
    function = {"name": call["name"], "arguments": _shown(call.get("arguments"))}
    return {"id": call.get("id"), "type": "function", "function": function}


def _blocks(blocks: list[Any]) -> list[Any]:
    """The blocks, with a block for each image of a block of several."""
    made: list[Any] = []
    for block in blocks:
        urls = block.get("image_urls") if isinstance(block, dict) else None
        if isinstance(urls, list):
            made += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        else:
            made.append(block)
    return made
