"""A server's requests and answers: those of Anthropic, Gemini and Bedrock.

Signatures in them say what they were made for. OpenAI's answers are in ``openai_answers.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Usage
from eventctx.testing.dialects import answer_message, finish_reason
from eventctx.testing.script import Reply, requests_of
from eventctx.testing.strict_provider.claude_request import THINKING, read_claude_request
from eventctx.testing.strict_provider.claude_thinking import BINDING_BETA, dropped_thinking
from eventctx.testing.strict_provider.rule import Api
from eventctx.testing.strict_provider.seals import (
    Seal,
    begin_digest,
    digest,
    prefix_digest,
    seal_signature,
    signature_of,
    text_digest,
)

Json = dict[str, Any]

_CHARACTERS_A_TOKEN: Final = 3.5
_OF_MEDIA: Final = 5_000
"""Characters as which an image or a file counts: about 1,500 tokens, whatever its base64 is."""


class ApiRequest(msgspec.Struct, frozen=True):
    """A request as it came; ``number`` counts those that were answered, from 1.

    ``compacts``: it asks for a compacted conversation, and for no answer (``/responses/compact``).
    """

    api: Api
    path: str
    headers: Mapping[str, str]
    body: Json
    model: str
    streams: bool = False
    counts: bool = False
    number: int = 0
    compacts: bool = False

    @property
    def checked(self) -> Json:
        """The body with what the rules need to know of the address and the headers."""
        if self.api == "anthropic":
            betas = [one.strip() for one in self.headers.get("anthropic-beta", "").split(",")]
            return {**self.body, "anthropic_beta": betas}
        name = {"gemini": "model", "bedrock": "modelId"}.get(self.api)
        return {**self.body, name: self.model} if name else self.body


class ApiAnswer(msgspec.Struct, frozen=True):
    """An answer whole, and as the events of a stream."""

    body: Json
    events: Sequence[Json]


def count_tokens(*values: Any) -> int:
    """A plausible number: characters of the JSON divided by 3.5, media as one size."""
    return math.ceil(sum(_characters(value) for value in values) / _CHARACTERS_A_TOKEN)


def used_tokens(reply: Reply, request: ApiRequest, said: Any) -> Usage:
    """The script's usage, else one by the sizes of the request and of what was said."""
    if reply.usage is not None:
        return reply.usage
    prompt = count_tokens({k: v for k, v in request.body.items() if k not in _SETTINGS})
    thought = count_tokens(reply.thinking) if reply.thinking else 0
    return Usage(prompt=prompt, output=count_tokens(said), reasoning=thought)


_SETTINGS: Final = ("model", "stream", "max_tokens", "thinking", "metadata", "store")


def pieces_of(text: str) -> Iterator[str]:
    """A text in pieces of a few words, as a stream brings it."""
    words = text.split(" ")
    for begin in range(0, len(words), 4):
        piece = " ".join(words[begin : begin + 4])
        yield f" {piece}" if begin else piece


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        media = isinstance(value.get("data"), str) and len(value["data"]) > _OF_MEDIA
        if media:
            return _OF_MEDIA
        return sum(len(str(key)) + 4 + _characters(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return sum(_characters(one) + 1 for one in value)
    return 0 if value is None else len(str(value))


def answer_claude(reply: Reply, request: ApiRequest) -> ApiAnswer:
    """A message, and the events that stream it."""
    asked = request.body.get("compaction") is not None and reply.finish_reason is None
    compacts = asked or reply.finish_reason == "compaction"
    if compacts:
        blocks = [_compaction(reply.text, request)]
    else:
        blocks = _sealed(answer_message(reply, "anthropic")["content"], request)
    if reply.compaction is not None:
        blocks.insert(0, {"type": "compaction", "content": reply.compaction})
    read, cleared = clear_tool_uses(request.body)
    used = used_tokens(reply, msgspec.structs.replace(request, body=read), blocks)
    edits = [*cleared, *reply.edits]
    usage = {
        "input_tokens": used.prompt - used.cache_read - used.cache_write,
        "cache_creation_input_tokens": used.cache_write,
        "cache_read_input_tokens": used.cache_read,
        "output_tokens": used.output,
    }
    reason = "compaction" if compacts else finish_reason(reply, "anthropic")
    end = {"stop_reason": reason, "stop_sequence": None}
    edited = {"context_management": {"applied_edits": edits}} if edits else {}
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
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": used.output}, **edited},
        {"type": "message_stop"},
    ]
    return ApiAnswer({**message, **end, **edited, "content": blocks, "usage": usage}, events)


def clear_tool_uses(body: Json) -> tuple[Json, list[Json]]:
    """A request as its model reads it after ``clear_tool_uses_20250919``, and the applied edits.

    As Anthropic's "Context editing" has it: above the trigger all results but the last ``keep``
    go, the oldest first, but those of excluded tools; unless that is less than ``clear_at_least``.
    """
    asked = (body.get("context_management") or {}).get("edits") or ()
    edit = next((one for one in asked if one["type"] == "clear_tool_uses_20250919"), None)
    if edit is None:
        return body, []
    trigger = edit.get("trigger") or {"type": "input_tokens", "value": 100_000}
    blocks = [block for _, block in read_claude_request(body).blocks()]
    names = {one.fields["id"]: one.fields["name"] for one in blocks if one.type == "tool_use"}
    answered = {one.fields["tool_use_id"] for one in blocks if one.type == "tool_result"}
    uses = [call for call in names if call in answered]
    size = count_tokens({k: v for k, v in body.items() if k not in _SETTINGS})
    if (size if trigger["type"] == "input_tokens" else len(uses)) <= trigger["value"]:
        return body, []
    known = [call for call in uses if names[call] not in (edit.get("exclude_tools") or ())]
    gone = known[: max(0, len(known) - (edit.get("keep") or {"value": 3})["value"])]
    inputs = edit.get("clear_tool_inputs") or ()
    bare = [call for call in gone if inputs is True or names[call] in (inputs or ())]
    read = {**body, "messages": [_cleared(one, gone, bare) for one in body["messages"]]}
    fewer = count_tokens(body["messages"]) - count_tokens(read["messages"])
    if not gone or fewer < (edit.get("clear_at_least") or {"value": 0})["value"]:
        return body, []
    counts = {"cleared_tool_uses": len(gone), "cleared_input_tokens": fewer}
    return read, [{"type": edit["type"], **counts}]


def _cleared(message: Json, gone: Sequence[str], bare: Sequence[str]) -> Json:
    if not isinstance(message["content"], list):
        return message
    blocks = []
    for block in message["content"]:
        if block["type"] == "tool_result" and block["tool_use_id"] in gone:
            block = {**block, "content": "[cleared]"}
        elif block["type"] == "tool_use" and block["id"] in bare:
            block = {**block, "input": {}}
        blocks.append(block)
    return {**message, "content": blocks}


def _compaction(summary: str, request: ApiRequest) -> Json:
    """The block that replaces all of the request's messages."""
    parsed = read_claude_request(request.body)
    said = text_digest("compaction", summary)
    seal = Seal(request.model, begin_digest(parsed), prefix_digest(parsed) or "", said)
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
