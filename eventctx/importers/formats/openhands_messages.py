"""OpenHands' events as messages in OpenAI's chat dialect, as its SDK converts them.

Each function takes an event and returns its message and the keys of the event that are in it; the
rest of the event is kept, too. An event without the necessary keys gives None.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from eventctx.importers.formats.openhands_observations import shown, text_block, with_pictures
from eventctx.importers.source.lines import list_or_empty, object_or_empty, text_or_none, without
from eventctx.importers.source.values import encode

_THINKING: Final = (
    "reasoning_content",
    "thinking_blocks",
    "responses_reasoning_item",
    "reasoning_details",
)
_CALL: Final = ("id", "name", "arguments")


class BuiltMessage(NamedTuple):
    """A message, and the keys of the event that are in it; ``rest`` replaces some of them."""

    message: dict[str, Any]
    used: tuple[str, ...]
    rest: dict[str, Any]
    failed: bool = False


def system_prompt(event: dict[str, Any]) -> BuiltMessage | None:
    """The prompt, followed by the text for this conversation only. The tools are left out."""
    used = tuple(key for key in ("system_prompt", "dynamic_context") if event.get(key))
    if "system_prompt" not in used:
        return None
    content = [
        text_block(event[key]) if isinstance(event[key], str) else event[key] for key in used
    ]
    return BuiltMessage({"role": "system", "content": content}, used, {})


def spoken(event: dict[str, Any]) -> BuiltMessage | None:
    """A message of a person, the agent or the environment, with the texts that skills added."""
    message = event.get("llm_message")
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return None
    made = dict(message)
    extended = list_or_empty(event.get("extended_content"))
    content = message.get("content")
    if isinstance(content, list) or extended:
        before = [text_block(content)] if isinstance(content, str) else list_or_empty(content)
        made["content"] = with_pictures([*before, *extended])
    if isinstance(message.get("tool_calls"), list):
        made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    used = ("llm_message", "extended_content") if extended else ("llm_message",)
    return BuiltMessage(made, used, {})


def action(event: dict[str, Any]) -> BuiltMessage | None:
    """One call of the model's answer, with its thoughts."""
    call = object_or_empty(event.get("tool_call"))
    call_id = text_or_none(call.get("id")) or text_or_none(event.get("tool_call_id"))
    if call_id is None:
        return None
    arguments = call.get("arguments", event.get("action"))
    name = text_or_none(call.get("name")) or text_or_none(event.get("tool_name"))
    function = {**call, "id": call_id, "name": name, "arguments": arguments}
    thought = event.get("thought")
    content = (
        [text_block(thought)] if isinstance(thought, str) and thought else list_or_empty(thought)
    )
    message = {"role": "assistant", "content": with_pictures(content) or None}
    thinking = {key: event[key] for key in _THINKING if event.get(key)}
    message.update(thinking)
    message["tool_calls"] = [_call(function)]
    used = ("thought",) if content else ()
    # An id or a name of another type is in the event alone.
    said = [key for key in _CALL if key == "arguments" or call.get(key) == function[key]]
    rest = {"tool_call": without(call, *said)} if call else {}
    return BuiltMessage(message, (*used, *thinking), rest)


def join(first: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
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


def observation(event: dict[str, Any]) -> BuiltMessage | None:
    """A tool's result as the model is shown it, with the texts that rules for its file added."""
    call_id, seen = text_or_none(event.get("tool_call_id")), event.get("observation")
    if call_id is None:
        return None
    result = shown(seen)
    rest = {"observation": without(seen, *result.used)} if isinstance(seen, dict) else {}
    extended = list_or_empty(event.get("extended_content"))
    content = [*result.blocks, *with_pictures(extended)]
    used = ("observation", "extended_content") if extended else ("observation",)
    return BuiltMessage(_result(event, call_id, content), used, rest, result.failed)


def failure(event: dict[str, Any]) -> BuiltMessage | None:
    """The result of a call that could not be made, or that a person refused."""
    call_id, error = text_or_none(event.get("tool_call_id")), text_or_none(event.get("error"))
    reason = text_or_none(event.get("rejection_reason"))
    text = error if reason is None else f"Action rejected: {reason}"
    if call_id is None or text is None:
        return None
    used = ("error",) if reason is None else ("rejection_reason",)
    return BuiltMessage(_result(event, call_id, text), used, {}, failed=True)


def summary_of(text: str) -> dict[str, Any]:
    """The message in place of forgotten events."""
    return {"role": "user", "content": [text_block(text)]}


def _result(event: dict[str, Any], call_id: str, content: str | list[Any]) -> dict[str, Any]:
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    name = text_or_none(event.get("tool_name"))
    return message if name is None else {**message, "name": name}


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _call(call: Any) -> Any:
    """A call in OpenAI's form, from the SDK's flat one."""
    if not isinstance(call, dict) or "function" in call or "name" not in call:
        return call
    function = {"name": call["name"], "arguments": _as_text(call.get("arguments"))}
    return {"id": call.get("id"), "type": "function", "function": function}
