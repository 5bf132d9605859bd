"""A provider's answer as its API returns it: a completion, a message, or a list of items.

The forms are those of OpenAI's chat completions (``choices``), of Anthropic's messages
(``content``) and of the Responses API (``output``). A streamed answer is put together to
the body that it would have been in one piece; a stream that was cut gives what came of it.
"""

from __future__ import annotations

from typing import Any, Final

from eventctx.importers.source.lines import (
    facts_or_none,
    item_facts_or_none,
    list_or_empty,
    object_or_empty,
    text_or_none,
)
from eventctx.importers.source.values import read_value

_INSIDE: Final = ("response", "body")


def answer_body(value: object) -> dict[str, Any]:
    """The answer itself, from a log that may wrap it; an empty object where there is none."""
    found = object_or_empty(value)
    for key in _INSIDE:
        if "choices" not in found and not answers(found) and isinstance(found.get(key), dict):
            found = found[key]
    return found


def answers(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages or items of an answer, in order; none where the body holds no answer."""
    message = first_choice(body).get("message")
    content = body.get("content")
    if isinstance(body.get("output"), list):
        # All items are the answer, also a compaction or what a hosted tool returned.
        return [one for one in body["output"] if item_facts_or_none(one) is not None]
    if isinstance(message, dict):
        found = [message]
    elif isinstance(content, str | list) and content:
        found = [{"role": "assistant", "content": content}]
    else:
        found = []
    return [one for one in found if _is_answer(one)]


def first_choice(body: dict[str, Any]) -> dict[str, Any]:
    """The first choice of a completion; an empty object if there is none."""
    return object_or_empty(next(iter(list_or_empty(body.get("choices"))), None))


def finish_of(body: dict[str, Any]) -> str | None:
    """The reason for the answer's end, in the provider's word; the Responses API has a status."""
    reasons = (
        first_choice(body).get("finish_reason"),
        body.get("stop_reason"),
        body.get("finish_reason"),
        body.get("status") if isinstance(body.get("output"), list) else None,
    )
    return next((reason for reason in reasons if text_or_none(reason)), None)


def _is_answer(value: object) -> bool:
    facts = facts_or_none(value)
    return facts is not None and facts.kind == "assistant"


_TEXTS: Final = ("content", "reasoning_content", "refusal", "reasoning")
_DELTAS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}


def joined_answer(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of an answer; an empty object where the events are of no API that is known."""
    kinds = {text_or_none(event.get("type")) or "" for event in events}
    if "message_start" in kinds:
        return _message(events)
    if any(kind.startswith("response.") for kind in kinds):
        return _response(events)
    return _completion(events) if any("choices" in event for event in events) else {}


# -- Anthropic -------------------------------------------------------------------------------------


def _message(events: list[dict[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    blocks: dict[object, dict[str, Any]] = {}
    inputs: dict[object, str] = {}
    for event in events:
        kind, place = event.get("type"), event.get("index")
        if kind == "message_start":
            body = dict(object_or_empty(event.get("message")))
        elif kind == "content_block_start" and isinstance(place, int):
            blocks[place] = dict(object_or_empty(event.get("content_block")))
        elif kind == "content_block_delta" and place in blocks:
            _add_delta(blocks[place], object_or_empty(event.get("delta")), inputs, place)
        elif kind == "message_delta":
            body.update(object_or_empty(event.get("delta")))
            usage = object_or_empty(event.get("usage"))
            body["usage"] = {**object_or_empty(body.get("usage")), **usage}
            told = ("input_transformations", "context_management")
            body.update({key: event[key] for key in told if event.get(key) is not None})
    for place, text in inputs.items():
        blocks[place]["input"] = _arguments(text)
    return {**body, "content": list(blocks.values())}


def _add_delta(
    block: dict[str, Any], delta: dict[str, Any], inputs: dict[object, str], place: object
) -> None:
    kind = text_or_none(delta.get("type")) or ""
    if kind == "input_json_delta":
        inputs[place] = inputs.get(place, "") + (text_or_none(delta.get("partial_json")) or "")
    elif kind == "citations_delta":
        block["citations"] = [*list_or_empty(block.get("citations")), delta.get("citation")]
    elif kind == "compaction_delta":  # the whole summary at once, and what is sealed of it
        block.update({key: value for key, value in delta.items() if key != "type" and value})
    elif kind in _DELTAS:
        key, field = _DELTAS[kind]
        more = text_or_none(delta.get(field)) or ""
        block[key] = (text_or_none(block.get(key)) or "") + more


def _arguments(text: str) -> Any:
    try:
        return read_value(text.encode(errors="surrogatepass"))[0] if text else {}
    except ValueError:
        return text  # cut in the middle: kept as far as it came


# -- OpenAI ----------------------------------------------------------------------------------------


def _completion(events: list[dict[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant"}
    calls: dict[object, dict[str, Any]] = {}
    finish: object = None
    for event in events:
        body.update({key: value for key, value in event.items() if key != "choices" and value})
        choices = [object_or_empty(one) for one in list_or_empty(event.get("choices"))]
        choice = next((one for one in choices if one.get("index") in (None, 0)), {})
        finish = choice.get("finish_reason") or finish
        delta = object_or_empty(choice.get("delta"))
        for key in _TEXTS:
            if isinstance(delta.get(key), str):
                message[key] = (message.get(key) or "") + delta[key]
        for call in list_or_empty(delta.get("tool_calls")):
            _add_call(calls, object_or_empty(call))
    if calls:
        message["tool_calls"] = list(calls.values())
    message.setdefault("content", None)
    body["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    return body


def _add_call(calls: dict[object, dict[str, Any]], delta: dict[str, Any]) -> None:
    place = delta.get("index", len(calls))
    if not isinstance(place, int):
        return
    more = object_or_empty(delta.get("function"))
    before = calls.get(place)
    if before is not None and more.get("name") and before["id"] != delta.get("id"):
        calls[place, before["id"]] = calls.pop(place)  # some servers number each call 0
    call = calls.setdefault(place, {"id": None, "type": "function", "function": {}})
    call["id"] = delta.get("id") or call["id"]
    function = call["function"]
    function["name"] = more.get("name") or function.get("name")
    function["arguments"] = function.get("arguments", "") + (
        text_or_none(more.get("arguments")) or ""
    )


def _response(events: list[dict[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    items: dict[object, Any] = {}
    for event in events:
        if isinstance(event.get("response"), dict):
            body = event["response"]
        if event.get("type") == "response.output_item.done":
            items[event.get("output_index", len(items))] = event.get("item")
    output = list_or_empty(body.get("output"))
    return body if output else {**body, "output": list(items.values())}
