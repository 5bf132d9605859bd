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
    blocks += [
        {"type": "tool_use", "id": call, "name": name, "input": given}
        for call, name, given in said.calls
    ]
    end = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
    asked, answered = said.used or (0, 0)
    usage = {
        "input_tokens": asked,
        "output_tokens": answered,
        **({"cache_read_input_tokens": said.cached} if said.cached else {}),
    }
    named = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}
    begun = {**named, "content": [], "usage": usage, "stop_reason": None}
    events: list[Body] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        events += _claude_events(index, block)
    events += [
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": answered}},
        {"type": "message_stop"},
    ]
    return {**named, **end, "content": blocks, "usage": usage}, events


def _claude_events(index: int, block: Body) -> Iterator[Body]:
    kind = block["type"]
    begun: Body = {
        "text": {"type": "text", "text": ""},
        "thinking": {"type": "thinking", "thinking": "", "signature": ""},
        "tool_use": {**block, "input": {}},
    }[kind]
    deltas: list[Body] = {
        "text": lambda: [{"type": "text_delta", "text": f"{w} "} for w in block["text"].split()],
        "thinking": lambda: [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ],
        "tool_use": lambda: [
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        ],
    }[kind]()
    if kind == "text":
        deltas[-1]["text"] = deltas[-1]["text"].rstrip()
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def chat(number: int, model: str, said: Said) -> tuple[Body, list[Body]]:
    """An answer of OpenAI's chat completions, and its stream."""
    calls = [
        {
            "index": n,
            "id": call,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for n, (call, name, given) in enumerate(said.calls)
    ]
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
    usage = {
        "prompt_tokens": said.used[0],
        "completion_tokens": said.used[1],
        "total_tokens": sum(said.used),
        "prompt_tokens_details": {"cached_tokens": said.cached},
    }
    return {**answer, "usage": usage}, [*events, {**chunk, "choices": [], "usage": usage}]


def response(number: int, model: str, said: Said) -> tuple[Body, list[Body]]:
    """An answer of OpenAI's Responses API, and its stream."""
    output: list[Body] = []
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]
        named = {"type": "message", "id": f"msg_{number}", "status": "completed"}
        output.append({**named, "role": "assistant", "content": content})
    output += [
        {
            "type": "function_call",
            "id": f"fc_{number}_{n}",
            "call_id": call,
            "name": name,
            "arguments": json.dumps(given),
            "status": "completed",
        }
        for n, (call, name, given) in enumerate(said.calls)
    ]
    answer: Body = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": model,
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if said.used is not None:
        answer["usage"] = {
            "input_tokens": said.used[0],
            "input_tokens_details": {"cached_tokens": said.cached},
            "output_tokens": said.used[1],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sum(said.used),
        }
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
