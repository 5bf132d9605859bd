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
CLAUDE_EVENTS: list[Body | str] = [
    {
        "type": "message_start",
        "message": {
            **_CLAUDE,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**CLAUDE_TEXT["usage"], "output_tokens": 1},
        },
    },
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {"type": "ping"},
    *(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": part},
        }
        for part in ("Is it", " fair?")
    ),
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "sig+/=="},
    },
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "text", "text": "", "citations": None},
    },
    *(
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": part}}
        for part in ("Fair", " enough.")
    ),
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": _CLAUDE_END, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]
CLAUDE_CALL: Body = {
    **_CLAUDE,
    "stop_reason": "tool_use",
    "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}],
    "usage": {"input_tokens": 5, "output_tokens": 2},
}

ANTHROPIC = Kit(
    "anthropic",
    claude_client,
    lambda client, **options: AnthropicProvider(client, "claude-x", **options),
    CLAUDE_TEXT,
    CLAUDE_EVENTS,
    CLAUDE_CALL,
    lambda kind, text: {"type": "error", "error": {"type": kind, "message": text}},
    lambda kind, text: {"type": "error", "error": {"type": kind, "message": text}},
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
CHAT_TEXT: Body = {
    **_CHAT,
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "Fair enough.",
                "reasoning_content": "Is it fair?",
                "refusal": None,
                "annotations": [],
            },
        }
    ],
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
CHAT_CALL: Body = {
    **_CHAT,
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "read", "arguments": '{"path": "a.py"}'},
                    }
                ],
            },
        }
    ],
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
RESPONSE_EVENTS: list[Body | str] = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
    *(
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "delta": part,
        }
        for part in ("Is it", " fair?")
    ),
    *(
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 1,
            "content_index": 0,
            "delta": part,
            "logprobs": [],
        }
        for part in ("Fair", " enough.")
    ),
    {"type": "response.completed", "response": RESPONSE},
]
RESPONSE_CALL: Body = {
    **RESPONSE,
    "output": [
        _REASONING,
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"path": "a.py"}',
            "status": "completed",
        },
    ],
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
