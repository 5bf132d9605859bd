"""Answers of Gemini and of Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Usage
from eventctx.testing.script import Reply, requests_of
from eventctx.testing.strict_provider.answering import (
    ApiAnswer,
    ApiRequest,
    Json,
    pieces_of,
    used_tokens,
)
from eventctx.testing.strict_provider.seals import digest


def answer_gemini(reply: Reply, request: ApiRequest) -> ApiAnswer:
    """A ``generateContent`` response, and the chunks that stream it."""
    _refuse_server_calls(reply)
    parts = list(_gemini_parts(reply, request))
    used = used_tokens(reply, request, parts)
    usage = {
        "promptTokenCount": used.prompt,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
        "cachedContentTokenCount": used.cache_read,
        "totalTokenCount": used.prompt + used.output,
    }
    finish = reply.finish_reason or "STOP"
    named = {
        "modelVersion": request.model,
        "responseId": reply.response_id or f"strict{request.number}",
    }
    chunks: list[Any] = [
        {**named, "candidates": [_candidate([one])], "usageMetadata": usage}
        for part in parts
        for one in _gemini_pieces(part)
    ]
    if chunks:
        chunks[-1]["candidates"][0]["finishReason"] = finish
    whole = {**_candidate(parts), "finishReason": finish}
    return ApiAnswer({**named, "candidates": [whole], "usageMetadata": usage}, chunks)


def _candidate(parts: list[Json]) -> Json:
    return {"index": 0, "content": {"role": "model", "parts": parts}}


def _gemini_parts(reply: Reply, request: ApiRequest) -> Iterator[Json]:
    if reply.thinking is not None:
        yield {"text": reply.thinking, "thought": True}
    if reply.text:
        yield {"text": reply.text}
    for place, call in enumerate(requests_of(reply)):
        named = {"id": call.id, "name": call.name, "args": dict(call.arguments)}
        part: Json = {"functionCall": named}
        if place == 0:  # Of parallel calls the first carries the signature of all.
            part["thoughtSignature"] = digest(request.number, call.name)[:32]
        yield part


def _gemini_pieces(part: Json) -> Iterator[Json]:
    if "text" not in part:
        yield part
        return
    for piece in pieces_of(part["text"]):
        yield {**part, "text": piece}


def answer_bedrock(reply: Reply, request: ApiRequest) -> ApiAnswer:
    """A Converse response, and the events of ``converse-stream``, each under its name."""
    _refuse_server_calls(reply)
    content = list(_bedrock_blocks(reply, request))
    used = used_tokens(reply, request, content)
    stop = reply.finish_reason or ("tool_use" if reply.calls else "end_turn")
    usage = _bedrock_usage(used)
    metrics = {"latencyMs": 1}
    events: list[Json] = [{"messageStart": {"role": "assistant"}}]
    for index, block in enumerate(content):
        events += _bedrock_events(index, block)
    events += [
        {"messageStop": {"stopReason": stop}},
        {"metadata": {"usage": usage, "metrics": metrics}},
    ]
    message = {"role": "assistant", "content": content}
    answer = {"output": {"message": message}, "stopReason": stop, "usage": usage}
    return ApiAnswer({**answer, "metrics": metrics}, events)


def _bedrock_usage(used: Usage) -> Json:
    return {
        "inputTokens": used.prompt - used.cache_read - used.cache_write,
        "outputTokens": used.output,
        "totalTokens": used.prompt + used.output,
        "cacheReadInputTokens": used.cache_read,
        "cacheWriteInputTokens": used.cache_write,
    }


def _bedrock_blocks(reply: Reply, request: ApiRequest) -> Iterator[Json]:
    if reply.thinking is not None:
        signed = {"text": reply.thinking, "signature": digest(request.number, reply.thinking)}
        yield {"reasoningContent": {"reasoningText": signed}}
    if reply.text:
        yield {"text": reply.text}
    for call in requests_of(reply):
        named = {"toolUseId": call.id, "name": call.name, "input": dict(call.arguments)}
        yield {"toolUse": named}


def _bedrock_events(index: int, block: Json) -> Iterator[Json]:
    deltas: list[Any]
    if "toolUse" in block:
        call = block["toolUse"]
        begun = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
        yield {"contentBlockStart": {"contentBlockIndex": index, "start": begun}}
        deltas = [{"toolUse": {"input": msgspec.json.encode(call["input"]).decode()}}]
    elif "text" in block:
        deltas = [{"text": piece} for piece in pieces_of(block["text"])]
    else:
        thought = block["reasoningContent"]["reasoningText"]
        pieces = [{"text": piece} for piece in pieces_of(thought["text"])]
        signed = {"signature": thought["signature"]}
        deltas = [{"reasoningContent": one} for one in (*pieces, signed)]
    for delta in deltas:
        yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}
    yield {"contentBlockStop": {"contentBlockIndex": index}}


def _refuse_server_calls(reply: Reply) -> None:
    if reply.server_calls:
        raise InvalidSetting("server_calls: this API has none of them, found some in the script")
