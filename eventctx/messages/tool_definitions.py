"""Definitions of tools as requests send them: Anthropic's, and both of OpenAI's."""

from __future__ import annotations

from typing import Any, Final

_MOVED: Final = ("type", "name", "description", "input_schema", "parameters")


_HOLDERS: Final = ("tools", "toolSpec", "functionDeclarations", "function_declarations")


def definitions_in(body: object) -> list[dict[str, Any]]:
    """The definitions in a stored body, of any API: alone, in lists, or in objects around them."""
    if isinstance(body, list):
        return [found for one in body for found in definitions_in(one)]
    if not isinstance(body, dict):
        return []
    inside = [body[key] for key in _HOLDERS if key in body]
    return definitions_in(inside) if inside and "name" not in body else [body]


def in_openais_form(tool: dict[str, Any]) -> dict[str, Any]:
    """A definition with its ``function``; one without a schema (a provider's own tool) as it is."""
    schema = tool.get("input_schema", tool.get("parameters"))
    if not isinstance(tool.get("name"), str) or not isinstance(schema, dict):
        return tool
    function: dict[str, Any] = {"name": tool["name"]}
    if "description" in tool:
        function["description"] = tool["description"]
    rest = {key: value for key, value in tool.items() if key not in _MOVED}
    return {"type": "function", "function": {**function, "parameters": schema, **rest}}


def in_genais_form(tool: dict[str, Any]) -> dict[str, Any]:
    """A definition with ``type`` and ``name``, which OpenTelemetry's GenAI conventions require."""
    made = in_openais_form(tool)
    function = made.get("function")
    flat = {"type": "function", **function} if isinstance(function, dict) else made
    kind = flat.get("type") if isinstance(flat.get("type"), str) else "function"
    name = flat.get("name") if isinstance(flat.get("name"), str) else kind
    return {**flat, "type": kind, "name": name}
