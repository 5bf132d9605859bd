"""Orchestrators: turns of an agent, with every step in the log and told to hooks.

Names are loaded when they are first used; none of them needs an SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventctx.orchestrators.anthropic import AnthropicProvider
    from eventctx.orchestrators.basic import BasicOrchestrator
    from eventctx.orchestrators.events import EventsOrchestrator
    from eventctx.orchestrators.openai_chat import OpenAIChatProvider
    from eventctx.orchestrators.openai_responses import OpenAIResponsesProvider
    from eventctx.orchestrators.protocol import (
        Answer,
        Chunk,
        ContextManager,
        Ids,
        OrchestratorModule,
        Provider,
        Request,
        Response,
        StreamingProvider,
        Tool,
        ToolDefinition,
        ToolOutcome,
        ToolRequest,
        Usage,
    )
    from eventctx.orchestrators.recording import current_ids
    from eventctx.orchestrators.settings import OrchestratorSettings
    from eventctx.orchestrators.sse import server_sent_events
    from eventctx.orchestrators.streaming import StreamingOrchestrator
    from eventctx.orchestrators.tools import as_tools, definition_of, run_tool, tool

_HOMES = {
    "Answer": "protocol",
    "AnthropicProvider": "anthropic",
    "BasicOrchestrator": "basic",
    "Chunk": "protocol",
    "ContextManager": "protocol",
    "EventsOrchestrator": "events",
    "Ids": "protocol",
    "OpenAIChatProvider": "openai_chat",
    "OpenAIResponsesProvider": "openai_responses",
    "OrchestratorModule": "protocol",
    "OrchestratorSettings": "settings",
    "Provider": "protocol",
    "Request": "protocol",
    "Response": "protocol",
    "StreamingOrchestrator": "streaming",
    "StreamingProvider": "protocol",
    "Tool": "protocol",
    "ToolDefinition": "protocol",
    "ToolOutcome": "protocol",
    "ToolRequest": "protocol",
    "Usage": "protocol",
    "as_tools": "tools",
    "current_ids": "recording",
    "definition_of": "tools",
    "run_tool": "tools",
    "server_sent_events": "sse",
    "tool": "tools",
}

__all__ = [
    "Answer",
    "AnthropicProvider",
    "BasicOrchestrator",
    "Chunk",
    "ContextManager",
    "EventsOrchestrator",
    "Ids",
    "OpenAIChatProvider",
    "OpenAIResponsesProvider",
    "OrchestratorModule",
    "OrchestratorSettings",
    "Provider",
    "Request",
    "Response",
    "StreamingOrchestrator",
    "StreamingProvider",
    "Tool",
    "ToolDefinition",
    "ToolOutcome",
    "ToolRequest",
    "Usage",
    "as_tools",
    "current_ids",
    "definition_of",
    "run_tool",
    "server_sent_events",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eventctx.orchestrators' has no attribute {name!r}")
    value = getattr(import_module(f"eventctx.orchestrators.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
