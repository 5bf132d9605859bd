"""Answers in the form of Anthropic's and OpenAI's APIs: whole, and as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Body = dict[str, Any]

USED = (120, 30)
"""Tokens of a request and of its answer; of the request, 100 come out of the cache."""


class Said(NamedTuple):
    """What a model says. ``calls`` are ids, names and arguments; ``used`` None says no usage."""

    text: str = ""
    calls: Sequence[tuple[str, str, Body]] = ()
    thinking: str | None = None
    used: tuple[int, int] | None = USED
    cached: int = 0


def claude(number: int, model: str, said: Said) -> tuple[Body, list[Body]]:
    """An answer of Anthropic's messages, and its stream."""
    blocks: list[Body] = []
    if said.thinking:
        blocks.append({"type": "thinking", "thinking": said.thinking, "signature": "c2lnbmVk"})
    if said.text:
        blocks.append({"type": "text", "text": said.text, "citations": None})
    for call, name, given in said.calls:
        blocks.append({"type": "tool_use", "id": call, "name": name, "input": given})
    end = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
    asked, answered = said.used or (0, 0)
    cached = {"cache_read_input_tokens": said.cached} if said.cached else {}
    usage = {"input_tokens": asked, "output_tokens": answered, **cached}
    named = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}
    begun: Body = {**named, "content": [], "usage": usage, "stop_reason": None}
    events: list[Body] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        events += _claude_events(index, block)
    last = {"type": "message_delta", "delta": end, "usage": {"output_tokens": answered}}
    events += [last, {"type": "message_stop"}]
    return {**named, **end, "content": blocks, "usage": usage}, events


def _claude_events(index: int, block: Body) -> Iterator[Body]:
    begun: Body
    deltas: list[Body]
    if block["type"] == "text":
        begun, words = {"type": "text", "text": ""}, block["text"].split()
        texts = [f"{word} " for word in words[:-1]] + words[-1:]
        deltas = [{"type": "text_delta", "text": text} for text in texts]
    elif block["type"] == "thinking":
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        names = ("thinking", "signature")
        deltas = [{"type": f"{name}_delta", name: block[name]} for name in names]
    else:
        begun = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def chat(number: int, model: str, said: Said) -> tuple[Body, list[Body]]:
    """An answer of OpenAI's chat completions, and its stream."""
    calls: list[Body] = []
    for n, (call, name, given) in enumerate(said.calls):
        function = {"name": name, "arguments": json.dumps(given)}
        calls.append({"index": n, "id": call, "type": "function", "function": function})
    finish = "tool_calls" if calls else "stop"
    named = {"id": f"chatcmpl-{number}", "model": model, "created": 1}
    message: Body = {"role": "assistant", "content": said.text or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "finish_reason": finish, "message": message}
    chunk = {**named, "object": "chat.completion.chunk"}
    events = [
        {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
    ]
    answer = {**named, "object": "chat.completion", "choices": [choice]}
    if said.used is None:
        return answer, events
    usage: Body = {"prompt_tokens": said.used[0], "completion_tokens": said.used[1]}
    cached = {"prompt_tokens_details": {"cached_tokens": said.cached}}
    usage |= {"total_tokens": sum(said.used), **cached}
    return {**answer, "usage": usage}, [*events, {**chunk, "choices": [], "usage": usage}]


def response(number: int, model: str, said: Said) -> tuple[Body, list[Body]]:
    """An answer of OpenAI's Responses API, and its stream."""
    output: list[Body] = []
    done = {"status": "completed"}
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]
        named = {"type": "message", "id": f"msg_{number}", **done}
        output.append({**named, "role": "assistant", "content": content})
    for n, (call, name, given) in enumerate(said.calls):
        named = {"type": "function_call", "id": f"fc_{number}_{n}", **done}
        output.append({**named, "call_id": call, "name": name, "arguments": json.dumps(given)})
    answer: Body = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": model}
    answer |= {**done, "output": output, "tools": [], "tool_choice": "auto"}
    answer["parallel_tool_calls"] = True
    if said.used is not None:
        asked, answered = said.used
        usage: Body = {
            "input_tokens": asked,
            "input_tokens_details": {"cached_tokens": said.cached},
        }
        usage |= {"output_tokens": answered, "output_tokens_details": {"reasoning_tokens": 0}}
        answer["usage"] = {**usage, "total_tokens": asked + answered}
    created = {**answer, "status": "in_progress", "output": [], "usage": None}
    return answer, [
        {"type": "response.created", "sequence_number": 0, "response": created},
        *_response_events(output),
        {"type": "response.completed", "sequence_number": 99, "response": answer},
    ]


def _response_events(output: list[Body]) -> Iterator[Body]:
    for index, item in enumerate(output):
        at = {"output_index": index, "sequence_number": 1}
        if item["type"] == "message":
            begun: Body = {**item, "status": "in_progress", "content": []}
            yield {"type": "response.output_item.added", **at, "item": begun}
            at |= {"item_id": item["id"], "content_index": 0}
            (part,) = item["content"]
            yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
            delta = {"delta": part["text"], "logprobs": []}
            yield {"type": "response.output_text.delta", **at, **delta}
        else:
            begun = {**item, "status": "in_progress", "arguments": ""}
            yield {"type": "response.output_item.added", **at, "item": begun}
            given = {"item_id": item["id"], "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.delta", **at, **given}
        done = {"output_index": index, "sequence_number": 2, "item": item}
        yield {"type": "response.output_item.done", **done}
