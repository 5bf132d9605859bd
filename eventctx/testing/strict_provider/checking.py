"""Every rule, and the check of a request by all rules of its API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, get_args

from eventctx.errors import InvalidSetting
from eventctx.testing.strict_provider import (
    bedrock,
    bedrock_tools,
    claude_blocks,
    claude_compaction,
    claude_limits,
    claude_messages,
    claude_thinking,
    claude_tools,
    gemini,
    openai_chat,
    openai_responses,
)
from eventctx.testing.strict_provider.bedrock import read_bedrock_request
from eventctx.testing.strict_provider.claude_request import read_claude_request
from eventctx.testing.strict_provider.openai_chat import read_chat_request
from eventctx.testing.strict_provider.response_items import read_responses_request
from eventctx.testing.strict_provider.rule import Api, Rule, Violation

RULES: Final[tuple[Rule, ...]] = (
    *claude_messages.RULES,
    *claude_compaction.RULES,
    *claude_blocks.RULES,
    *claude_tools.RULES,
    *claude_thinking.RULES,
    *claude_limits.RULES,
    *openai_chat.RULES,
    *openai_responses.RULES,
    *gemini.RULES,
    *bedrock.RULES,
    *bedrock_tools.RULES,
)
"""Every rule of every API, once; of one API in the order in which a request meets them."""

_READERS: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "anthropic": read_claude_request,
    "openai-chat": read_chat_request,
    "openai-responses": read_responses_request,
    "gemini": gemini.read_gemini_request,
    "bedrock": read_bedrock_request,
}


def violations(
    api: Api, request: Mapping[str, Any], *, without: Collection[str] = ()
) -> tuple[Violation, ...]:
    """Each place in which a request breaks a published rule of its API; empty if none.

    ``request`` is the JSON body as the API takes it; ``messages`` (``input``, ``contents``) is
    enough, and rules that depend on a model need its name: ``model``, for Bedrock ``modelId``. A
    real API answers with the first message. ``without`` names rules that are left out.
    """
    if api not in _READERS:
        raise InvalidSetting(f"api: expected one of {get_args(Api)}, found {api!r}")
    parsed = _READERS[api](request)
    return tuple(
        Violation(rule.name, path, message)
        for rule in RULES
        if rule.api == api and rule.name not in without
        for path, message in rule.check(parsed)
    )
