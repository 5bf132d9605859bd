"""Answers of Anthropic's Messages API, with signatures that say what they were made for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from eventctx.testing.dialects import answer_message, finish_reason
from eventctx.testing.script import Reply
from eventctx.testing.strict_provider.answering import (
    ApiAnswer,
    ApiRequest,
    Json,
    pieces_of,
    used_tokens,
)
from eventctx.testing.strict_provider.claude_request import THINKING, read_claude_request
from eventctx.testing.strict_provider.claude_thinking import BINDING_BETA, dropped_thinking
from eventctx.testing.strict_provider.seals import (
    Seal,
    begin_digest,
    digest,
    prefix_digest,
    seal_signature,
    signature_of,
    text_digest,
)


def answer_claude(reply: Reply, request: ApiRequest) -> ApiAnswer:
    """A message, and the events that stream it."""
    if reply.finish_reason == "compaction":
        blocks = [_compaction(reply.text, request)]
    else:
        blocks = _sealed(answer_message(reply, "anthropic")["content"], request)
    used = used_tokens(reply, request, blocks)
    usage = {
        "input_tokens": used.prompt - used.cache_read - used.cache_write,
        "cache_creation_input_tokens": used.cache_write,
        "cache_read_input_tokens": used.cache_read,
        "output_tokens": used.output,
    }
    end = {"stop_reason": finish_reason(reply, "anthropic"), "stop_sequence": None}
    message: Json = {
        "id": reply.response_id or f"msg_strict{request.number}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
    }
    if BINDING_BETA in request.checked["anthropic_beta"]:
        dropped = dropped_thinking(read_claude_request(request.checked))
        message["input_transformations"] = [
            {"type": "thinking_dropped", **msgspec.to_builtins(one)} for one in dropped
        ]
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    events = [
        {"type": "message_start", "message": {**begun, "usage": {**usage, "output_tokens": 1}}},
        *(event for index, block in enumerate(blocks) for event in _events(index, block)),
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": used.output}},
        {"type": "message_stop"},
    ]
    return ApiAnswer({**message, **end, "content": blocks, "usage": usage}, events)


def _compaction(summary: str, request: ApiRequest) -> Json:
    """The block that stands for all of the request's messages."""
    parsed = read_claude_request(request.body)
    seal = Seal(request.model, begin_digest(parsed), prefix_digest(parsed) or "")
    return {"type": "compaction", "content": summary, "signature": seal_signature(seal)}


def _sealed(blocks: list[Json], request: ApiRequest) -> list[Json]:
    """The blocks; each thinking signed for its text, its model, and what is before it."""
    parsed = read_claude_request(request.body)
    thought = [block for _, block in parsed.blocks() if block.type in THINKING]
    after = digest(signature_of(thought[-1])) if thought else ""
    for place, block in enumerate(blocks):
        if block["type"] == "thinking":
            prefix = prefix_digest(parsed, answered=blocks[:place]) or ""
            seal = Seal(request.model, text_digest("thinking", block["thinking"]), prefix, after)
            block["signature"] = seal_signature(seal)
            after = digest(block["signature"])
    return blocks


def _events(index: int, block: Json) -> Iterator[Json]:
    begun, deltas = _begun_and_deltas(block)
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _begun_and_deltas(block: Json) -> tuple[Json, list[Json]]:
    kind = block["type"]
    if kind == "text":
        pieces = pieces_of(block["text"])
        return {**block, "text": ""}, [{"type": "text_delta", "text": one} for one in pieces]
    if kind == "thinking":
        deltas: list[Any] = [
            {"type": "thinking_delta", "thinking": one} for one in pieces_of(block["thinking"])
        ]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
    if kind in ("tool_use", "server_tool_use"):
        written = msgspec.json.encode(block["input"]).decode()
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]
    if kind == "compaction":
        given = {"type": "compaction_delta", "content": block["content"]}
        return {**block, "content": None}, [given]
    return block, []
