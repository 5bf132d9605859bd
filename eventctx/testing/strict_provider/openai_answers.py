"""Answers of OpenAI's APIs; ids of the Responses API say which reasoning an item was made with."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.testing.dialects import answer_message, finish_reason
from eventctx.testing.script import Reply, requests_of
from eventctx.testing.strict_provider.answering import (
    ApiAnswer,
    ApiRequest,
    Json,
    pieces_of,
    used_tokens,
)
from eventctx.testing.strict_provider.response_items import issued_id

_MOST_ITEMS: Final = 1_000
"""Items of one answer at most: their ids are numbers of the answer and of the item."""

_CREATED: Final = 1_790_000_000


def answer_chat(reply: Reply, request: ApiRequest) -> ApiAnswer:
    """A chat completion, and the chunks that stream it."""
    message = {**answer_message(reply, "chat"), "refusal": None}
    finish = finish_reason(reply, "chat")
    used = used_tokens(reply, request, message)
    usage = {
        "prompt_tokens": used.prompt,
        "completion_tokens": used.output,
        "total_tokens": used.prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cache_read},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }
    named = {
        "id": reply.response_id or f"chatcmpl-strict{request.number}",
        "created": _CREATED,
        "model": request.model,
    }
    choice = {"index": 0, "finish_reason": finish, "message": message, "logprobs": None}
    chunk = {**named, "object": "chat.completion.chunk"}
    events = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in _deltas(message)
    ]
    events.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (request.body.get("stream_options") or {}).get("include_usage"):
        events.append({**chunk, "choices": [], "usage": usage})
    answer = {**named, "object": "chat.completion", "choices": [choice], "usage": usage}
    return ApiAnswer(answer, events)


def _deltas(message: Json) -> Iterator[Json]:
    yield {"role": "assistant", "content": None}
    for name in ("reasoning_content", "content"):
        for piece in pieces_of(message.get(name) or ""):
            if piece:
                yield {name: piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        begun = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [begun]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]}


def answer_responses(reply: Reply, request: ApiRequest) -> ApiAnswer:
    """A response, and the events that stream it."""
    output = list(_items(reply, request))
    used = used_tokens(reply, request, output)
    answer: Json = {
        "id": reply.response_id or f"resp_strict{request.number}",
        "object": "response",
        "created_at": _CREATED,
        "model": request.model,
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": request.body.get("tools") or [],
        "store": request.body.get("store", True),
        "usage": {
            "input_tokens": used.prompt,
            "input_tokens_details": {"cached_tokens": used.cache_read},
            "output_tokens": used.output,
            "output_tokens_details": {"reasoning_tokens": used.reasoning},
            "total_tokens": used.prompt + used.output,
        },
    }
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(output):
        events += _item_events(index, item)
    events.append({"type": "response.completed", "response": answer})
    numbered = [{**event, "sequence_number": place} for place, event in enumerate(events)]
    return ApiAnswer(answer, numbered)


def answer_compact(reply: Reply, request: ApiRequest) -> ApiAnswer:
    """A compacted conversation: what the user said, and an item that stands for the rest."""
    sent = request.body.get("input") or []
    rows = [{"role": "user", "content": sent}] if isinstance(sent, str) else sent
    number = request.number * _MOST_ITEMS
    users = [
        _as_output(row, issued_id("msg", number + place))
        for place, row in enumerate(rows, 1)
        if row.get("role") == "user"
    ]
    output = [*users, _compaction(reply.text, number)]
    used = used_tokens(reply, request, output)
    usage = {
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cache_read},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.prompt + used.output,
    }
    named = {"id": f"resp_strict{request.number}", "created_at": _CREATED}
    return ApiAnswer(
        {**named, "object": "response.compaction", "output": output, "usage": usage}, []
    )


def _as_output(row: Json, own: str) -> Json:
    said = row["content"]
    content = [{"type": "input_text", "text": said}] if isinstance(said, str) else said
    return {"type": "message", "id": own, "status": "completed", "role": "user", "content": content}


def _compaction(summary: str, number: int) -> Json:
    """The opaque item of a compaction; what is in it is nobody's but the server's to read."""
    sealed = base64.b64encode(f"strict:{summary}".encode()).decode()
    named = {"type": "compaction", "id": issued_id("cmp", number)}
    return {**named, "encrypted_content": sealed}


def _items(reply: Reply, request: ApiRequest) -> Iterator[Json]:
    number = request.number * _MOST_ITEMS
    if reply.compaction is not None:
        yield _compaction(reply.compaction, number)
    reasoning = issued_id("rs", number) if reply.thinking is not None else None
    if reasoning is not None:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        item = {"type": "reasoning", "id": reasoning, "summary": summary}
        if "reasoning.encrypted_content" in (request.body.get("include") or ()):
            item["encrypted_content"] = f"gAAAA_{reasoning}"
        yield item
    for served in reply.server_calls:
        number += 1
        if served.name != "web_search":
            raise InvalidSetting(f"server_calls: expected web_search, found {served.name!r}")
        action = {"type": "search", **(served.arguments or {})}
        named = {"type": "web_search_call", "id": issued_id("ws", number, reasoning)}
        yield {**named, "status": "completed", "action": action}
    if reply.text:
        number += 1
        content = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        named = {"type": "message", "id": issued_id("msg", number, reasoning)}
        yield {**named, "role": "assistant", "status": "completed", "content": [content]}
    for call in requests_of(reply):
        number += 1
        yield {
            "type": "function_call",
            "id": issued_id("fc", number, reasoning),
            "call_id": call.id,
            "name": call.name,
            "arguments": msgspec.json.encode(call.arguments).decode(),
            "status": "completed",
        }


def _item_events(index: int, item: Json) -> Iterator[Json]:
    at: Any = {"output_index": index}
    inner: Any = {**at, "item_id": item["id"]}
    if item["type"] == "message":
        part = item["content"][0]
        yield _add(at, {**item, "status": "in_progress", "content": []})
        inner |= {"content_index": 0}
        yield {"type": "response.content_part.added", **inner, "part": {**part, "text": ""}}
        for piece in pieces_of(part["text"]):
            text = {"delta": piece, "logprobs": []}
            yield {"type": "response.output_text.delta", **inner, **text}
        done = {"text": part["text"], "logprobs": []}
        yield {"type": "response.output_text.done", **inner, **done}
        yield {"type": "response.content_part.done", **inner, "part": part}
    elif item["type"] == "function_call":
        yield _add(at, {**item, "status": "in_progress", "arguments": ""})
        given = {"delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.delta", **inner, **given}
        whole = {"arguments": item["arguments"], "name": item["name"]}
        yield {"type": "response.function_call_arguments.done", **inner, **whole}
    elif item["type"] == "reasoning":
        yield _add(at, {**item, "summary": []})
        inner |= {"summary_index": 0}
        part = item["summary"][0]
        added = {**part, "text": ""}
        yield {"type": "response.reasoning_summary_part.added", **inner, "part": added}
        for piece in pieces_of(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **inner, "delta": piece}
        done = {"text": part["text"]}
        yield {"type": "response.reasoning_summary_text.done", **inner, **done}
        yield {"type": "response.reasoning_summary_part.done", **inner, "part": part}
    else:
        yield _add(at, {**item, "status": "in_progress"})
    yield {"type": "response.output_item.done", **at, "item": item}


def _add(at: Json, item: Json) -> Json:
    return {"type": "response.output_item.added", **at, "item": item}
