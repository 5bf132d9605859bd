"""The three dialects side by side: a provider, and small bodies in its API's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from eventctx.orchestrators.protocol import StreamingProvider
from eventctx.orchestrators.providers.anthropic import AnthropicProvider
from eventctx.orchestrators.providers.openai_chat import OpenAIChatProvider
from eventctx.orchestrators.providers.openai_responses import OpenAIResponsesProvider
from tests.orchestrators.providers.server import claude_client, openai_client

Body = dict[str, Any]


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


# -- Anthropic -----------------------------------------------------------------------------------

_CLAUDE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
_CLAUDE_END = {"stop_reason": "end_turn", "stop_sequence": None}
CLAUDE_TEXT: Body = {
    **_CLAUDE,
    **_CLAUDE_END,
    "content": [
        {"type": "thinking", "thinking": "Is it fair?", "signature": "sig+/=="},
        {"type": "text", "text": "Fair enough.", "citations": None},
    ],
    "usage": {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
    },
}
_BEGUN = {**_CLAUDE, "content": [], "stop_reason": None, "stop_sequence": None}
_BEGUN_USAGE = {**CLAUDE_TEXT["usage"], "output_tokens": 1}


def _claude_block(index: int, block: Body, *deltas: Body) -> list[Body]:
    """The events of one block of an answer in pieces."""
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


CLAUDE_EVENTS: list[Body | str] = [
    {"type": "message_start", "message": {**_BEGUN, "usage": _BEGUN_USAGE}},
    {"type": "ping"},
    *_claude_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        *({"type": "thinking_delta", "thinking": part} for part in ("Is it", " fair?")),
        {"type": "signature_delta", "signature": "sig+/=="},
    ),
    *_claude_block(
        1,
        {"type": "text", "text": "", "citations": None},
        *({"type": "text_delta", "text": part} for part in ("Fair", " enough.")),
    ),
    {"type": "message_delta", "delta": _CLAUDE_END, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]
CLAUDE_CALL: Body = {
    **_CLAUDE,
    "stop_reason": "tool_use",
    "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}],
    "usage": {"input_tokens": 5, "output_tokens": 2},
}


def _claude_error(kind: str, text: str) -> Body:
    return {"type": "error", "error": {"type": kind, "message": text}}


ANTHROPIC = Kit(
    "anthropic",
    claude_client,
    lambda client, **options: AnthropicProvider(client, "claude-x", **options),
    CLAUDE_TEXT,
    CLAUDE_EVENTS,
    CLAUDE_CALL,
    _claude_error,
    _claude_error,
)

# -- chat completions ----------------------------------------------------------------------------

_CHAT = {"id": "chatcmpl-1", "model": "gpt-x", "created": 1, "object": "chat.completion"}
_CHAT_USAGE = {
    "prompt_tokens": 130,
    "completion_tokens": 7,
    "total_tokens": 137,
    "prompt_tokens_details": {"cached_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
_CHAT_ANSWER = {"role": "assistant", "content": "Fair enough.", "reasoning_content": "Is it fair?"}
_CHAT_MESSAGE = {**_CHAT_ANSWER, "refusal": None, "annotations": []}
CHAT_TEXT: Body = {
    **_CHAT,
    "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": _CHAT_MESSAGE}],
    "usage": _CHAT_USAGE,
}


def chat_part(delta: Body, finish: str | None = None) -> Body:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_CHAT, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


CHAT_END: list[Body | str] = [
    chat_part({}, "stop"),
    {**_CHAT, "object": "chat.completion.chunk", "choices": [], "usage": _CHAT_USAGE},
    "[DONE]",
]
CHAT_EVENTS: list[Body | str] = [
    chat_part({"role": "assistant", "content": None, "reasoning_content": "", "refusal": None}),
    chat_part({"reasoning_content": "Is it"}),
    chat_part({"reasoning_content": " fair?"}),
    chat_part({"content": "Fair"}),
    chat_part({"content": " enough."}),
    *CHAT_END,
]
_READ = {"name": "read", "arguments": '{"path": "a.py"}'}
_CHAT_CALLS = [{"index": 0, "id": "c1", "type": "function", "function": _READ}]
_CHAT_CALLING = {"role": "assistant", "content": None, "tool_calls": _CHAT_CALLS}
CHAT_CALL: Body = {
    **_CHAT,
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": _CHAT_CALLING}],
    "usage": _CHAT_USAGE,
}

CHAT = Kit(
    "chat",
    lambda url: openai_client(f"{url}/v1"),
    lambda client, **options: OpenAIChatProvider(client, "gpt-x", **options),
    CHAT_TEXT,
    CHAT_EVENTS,
    CHAT_CALL,
    lambda kind, text: {"error": {"type": kind, "message": text, "code": None, "param": None}},
    lambda kind, text: {"error": {"type": kind, "message": text, "code": kind}},
)

# -- responses -----------------------------------------------------------------------------------

_REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Is it fair?"}],
    "encrypted_content": "gAAA+/==",
    "status": None,
}
_TEXT = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Fair enough.", "annotations": [], "logprobs": []}],
}
RESPONSE: Body = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [_REASONING, _TEXT],
    "usage": {
        "input_tokens": 130,
        "input_tokens_details": {"cached_tokens": 100},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 137,
    },
}
_THOUGHT = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
_WRITTEN = {"item_id": "msg_1", "output_index": 1, "content_index": 0, "logprobs": []}
RESPONSE_EVENTS: list[Body | str] = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
    *(
        {"type": "response.reasoning_summary_text.delta", **_THOUGHT, "delta": part}
        for part in ("Is it", " fair?")
    ),
    *(
        {"type": "response.output_text.delta", **_WRITTEN, "delta": part}
        for part in ("Fair", " enough.")
    ),
    {"type": "response.completed", "response": RESPONSE},
]
_RESPONSE_READ = {"type": "function_call", "id": "fc_1", "call_id": "c1", **_READ}
RESPONSE_CALL: Body = {
    **RESPONSE,
    "output": [_REASONING, {**_RESPONSE_READ, "status": "completed"}],
}

RESPONSES = Kit(
    "responses",
    lambda url: openai_client(f"{url}/v1"),
    lambda client, **options: OpenAIResponsesProvider(client, "gpt-x", **options),
    RESPONSE,
    RESPONSE_EVENTS,
    RESPONSE_CALL,
    lambda kind, text: {"error": {"type": kind, "message": text, "code": None, "param": None}},
    lambda kind, text: {"type": "error", "code": kind, "message": text, "param": None},
)

KITS = (ANTHROPIC, CHAT, RESPONSES)
