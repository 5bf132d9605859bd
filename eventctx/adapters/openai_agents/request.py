"""What a request of the SDK holds beside its items: the tools' definitions and the model's name."""

from __future__ import annotations

from typing import Any

from agents import Agent, FunctionTool, RunConfig


def tool_definitions(agent: Agent[Any]) -> list[dict[str, Any]]:
    """The definitions of an agent's function tools, as the Responses API takes them.

    Tools of MCP servers and hosted tools are listed by servers, and do not count.
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
        for tool in agent.tools
        if isinstance(tool, FunctionTool)
    ]


def model_name(agent: Agent[Any], config: RunConfig) -> str | None:
    """The name of the model that will be called, as far as the agent or the run says it."""
    model = config.model if config.model is not None else agent.model
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None
