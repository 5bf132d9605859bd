"""The three dialects side by side: a provider, and small bodies in its API's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from eventctx.orchestrators.protocol import StreamingProvider
from eventctx.orchestrators.providers.anthropic import AnthropicProvider
from eventctx.orchestrators.providers.openai_chat import OpenAIChatProvider
from eventctx.orchestrators.providers.openai_responses import OpenAIResponsesProvider
from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import claude_client, openai_client


class Kit(NamedTuple):
    """One dialect. ``text`` and ``call`` are answers whole, ``text_events`` the first in pieces.

    Both say "Fair enough."; the call is of ``read`` with ``{"path": "a.py"}`` and id ``c1``.
    ``refusal`` makes an error's body of a type and a message, ``broken`` the event of an error
    inside a stream.
    """

    name: str
    connect: Callable[[str], Any]
    provider: Callable[..., StreamingProvider]
    text: Body
    text_events: list[Body | str]
    call: Body
    refusal: Callable[[str, str], Body]
    broken: Callable[[str, str], Body]


READS: Final = Said(calls=[("c1", "read", {"path": "a.py"})], used=(130, 7), cached=100)
THOUGHT, WORDS = ("Is it", " fair?"), ("Fair", " enough.")
"""The pieces of the first answer, in which it comes in a stream."""

# -- Anthropic -----------------------------------------------------------------------------------

_CLAUDE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
_CLAUDE_END = {"stop_reason": "end_turn", "stop_sequence": None}
_CLAUDE_USAGE: Body = {"input_tokens": 10, "output_tokens": 7}
_CLAUDE_USAGE |= {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
_CLAUDE_USAGE |= {"output_tokens_details": {"thinking_tokens": 3}}
_CLAUDE_BLOCKS = [
    {"type": "thinking", "thinking": "".join(THOUGHT), "signature": "sig+/=="},
    {"type": "text", "text": "".join(WORDS), "citations": None},
]
CLAUDE_TEXT: Body = {**_CLAUDE, **_CLAUDE_END, "content": _CLAUDE_BLOCKS, "usage": _CLAUDE_USAGE}
_BEGUN: Body = {**_CLAUDE, "content": [], "stop_reason": None, "stop_sequence": None}


def _claude_block(index: int, block: Body, *deltas: Body) -> list[Body]:
    """The events of one block of an answer in pieces."""
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


CLAUDE_EVENTS: list[Body | str] = [
    {"type": "message_start", "message": {**_BEGUN, "usage": _CLAUDE_USAGE | {"output_tokens": 1}}},
    {"type": "ping"},
    *_claude_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        *({"type": "thinking_delta", "thinking": part} for part in THOUGHT),
        {"type": "signature_delta", "signature": "sig+/=="},
    ),
    *_claude_block(
        1,
        {"type": "text", "text": "", "citations": None},
        *({"type": "text_delta", "text": part} for part in WORDS),
    ),
    {"type": "message_delta", "delta": _CLAUDE_END, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]
CLAUDE_CALL, _ = claude(1, "claude-x", READS)


def _claude_error(kind: str, text: str) -> Body:
    return {"type": "error", "error": {"type": kind, "message": text}}


ANTHROPIC = Kit(
    "anthropic",
    claude_client,
    lambda client, **options: AnthropicProvider(client, "claude-x", **options),
    *(CLAUDE_TEXT, CLAUDE_EVENTS, CLAUDE_CALL, _claude_error, _claude_error),
)

# -- chat completions ----------------------------------------------------------------------------

_CHAT = {"id": "chatcmpl-1", "model": "gpt-x", "created": 1, "object": "chat.completion"}
_CHUNK = {**_CHAT, "object": "chat.completion.chunk"}
_CHAT_USAGE: Body = {"prompt_tokens": 130, "completion_tokens": 7, "total_tokens": 137}
_CHAT_USAGE |= {"prompt_tokens_details": {"cached_tokens": 100}}
_CHAT_USAGE |= {"completion_tokens_details": {"reasoning_tokens": 3}}
_CHAT_ANSWER = {"role": "assistant", "content": "Fair enough.", "reasoning_content": "Is it fair?"}
_CHAT_MESSAGE: Body = {**_CHAT_ANSWER, "refusal": None, "annotations": []}
_CHOICE = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": _CHAT_MESSAGE}
CHAT_TEXT: Body = {**_CHAT, "choices": [_CHOICE], "usage": _CHAT_USAGE}


def chat_part(delta: Body, finish: str | None = None) -> Body:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_CHUNK, "choices": [choice], "usage": None}


CHAT_END: list[Body | str] = [
    chat_part({}, "stop"),
    {**_CHUNK, "choices": [], "usage": _CHAT_USAGE},
    "[DONE]",
]
CHAT_EVENTS: list[Body | str] = [
    chat_part({"role": "assistant", "content": None, "reasoning_content": "", "refusal": None}),
    *(chat_part({"reasoning_content": part}) for part in THOUGHT),
    *(chat_part({"content": part}) for part in WORDS),
    *CHAT_END,
]
CHAT_CALL, _ = chat(1, "gpt-x", READS)


def _openai_error(kind: str, text: str) -> Body:
    return {"error": {"type": kind, "message": text, "code": None, "param": None}}


CHAT = Kit(
    "chat",
    lambda url: openai_client(f"{url}/v1"),
    lambda client, **options: OpenAIChatProvider(client, "gpt-x", **options),
    *(CHAT_TEXT, CHAT_EVENTS, CHAT_CALL, _openai_error),
    lambda kind, text: {"error": {"type": kind, "message": text, "code": kind}},
)

# -- responses -----------------------------------------------------------------------------------

_SUMMARY = [{"type": "summary_text", "text": "Is it fair?"}]
_REASONING: Body = {"id": "rs_1", "type": "reasoning", "summary": _SUMMARY, "status": None}
_REASONING["encrypted_content"] = "gAAA+/=="
RESPONSE, _ = response(1, "gpt-x", Said("Fair enough.", used=(130, 7), cached=100))
RESPONSE["usage"]["output_tokens_details"] = {"reasoning_tokens": 3}
RESPONSE["output"].insert(0, _REASONING)
_THOUGHT = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
_WRITTEN = {"item_id": "msg_1", "output_index": 1, "content_index": 0, "logprobs": []}
_DELTAS: list[Body] = [
    {"type": "response.reasoning_summary_text.delta", **_THOUGHT, "delta": part} for part in THOUGHT
]
_DELTAS += [{"type": "response.output_text.delta", **_WRITTEN, "delta": part} for part in WORDS]
RESPONSE_EVENTS: list[Body | str] = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
    *_DELTAS,
    {"type": "response.completed", "response": RESPONSE},
]
_CALLS, _ = response(1, "gpt-x", READS)
RESPONSE_CALL: Body = {**RESPONSE, "output": [_REASONING, *_CALLS["output"]]}

RESPONSES = Kit(
    "responses",
    lambda url: openai_client(f"{url}/v1"),
    lambda client, **options: OpenAIResponsesProvider(client, "gpt-x", **options),
    *(RESPONSE, RESPONSE_EVENTS, RESPONSE_CALL, _openai_error),
    lambda kind, text: {"type": "error", "code": kind, "message": text, "param": None},
)

KITS = (ANTHROPIC, CHAT, RESPONSES)
