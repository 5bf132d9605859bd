"""Orchestrators: turns of an agent, with every step in the log and known to hooks.

A name is loaded when it is first used; none of them needs an SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventctx.orchestrators.loops.basic import BasicOrchestrator
    from eventctx.orchestrators.loops.events import EventsOrchestrator
    from eventctx.orchestrators.loops.recording import current_ids
    from eventctx.orchestrators.loops.settings import OrchestratorSettings
    from eventctx.orchestrators.loops.sse import server_sent_events
    from eventctx.orchestrators.loops.streaming import StreamingOrchestrator
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
    from eventctx.orchestrators.providers.anthropic import AnthropicProvider
    from eventctx.orchestrators.providers.openai_chat import OpenAIChatProvider
    from eventctx.orchestrators.providers.openai_responses import OpenAIResponsesProvider
    from eventctx.orchestrators.tools.functions import as_tools, definition_of, run_tool, tool

_HOMES = {
    "Answer": "protocol",
    "AnthropicProvider": "providers.anthropic",
    "BasicOrchestrator": "loops.basic",
    "Chunk": "protocol",
    "ContextManager": "protocol",
    "EventsOrchestrator": "loops.events",
    "Ids": "protocol",
    "OpenAIChatProvider": "providers.openai_chat",
    "OpenAIResponsesProvider": "providers.openai_responses",
    "OrchestratorModule": "protocol",
    "OrchestratorSettings": "loops.settings",
    "Provider": "protocol",
    "Request": "protocol",
    "Response": "protocol",
    "StreamingOrchestrator": "loops.streaming",
    "StreamingProvider": "protocol",
    "Tool": "protocol",
    "ToolDefinition": "protocol",
    "ToolOutcome": "protocol",
    "ToolRequest": "protocol",
    "Usage": "protocol",
    "as_tools": "tools.functions",
    "current_ids": "loops.recording",
    "definition_of": "tools.functions",
    "run_tool": "tools.functions",
    "server_sent_events": "loops.sse",
    "tool": "tools.functions",
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
