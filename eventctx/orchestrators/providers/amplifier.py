"""Amplifier's provider modules as providers of an orchestrator.

A request's rows become ``Message`` objects. A ``ChatResponse`` becomes the row that Amplifier's own
loops store: content blocks as they came, with thinking and its signature, and the calls once more
in ``tool_calls``. So a session can change between our loops and theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eventctx.errors import ProviderFailed
from eventctx.log.usage import AMPLIFIER, read_usage
from eventctx.orchestrators.protocol import (
    Answer,
    Request,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
)
from eventctx.orchestrators.providers.amplifier_rows import as_messages


class AmplifierProvider:
    """A provider module of Amplifier: ``complete(ChatRequest) -> ChatResponse``.

    ``provider`` is the module's object, ``name`` the one under which it is mounted.
    """

    takes_tool_choice = True

    def __init__(self, provider: Any, name: str | None = None) -> None:
        self._provider = provider
        self.name = name or str(getattr(provider, "name", None) or "amplifier")

    @property
    def model(self) -> str | None:
        """The module's default model, if it names one."""
        config = getattr(self._provider, "config", None)
        given = config if isinstance(config, Mapping) else {}
        for found in (
            getattr(self._provider, "default_model", None),
            getattr(self._provider, "model", None),
            given.get("default_model"),
            given.get("model"),
        ):
            if isinstance(found, str) and found:
                return found
        return None

    async def complete(self, request: Request) -> Answer:
        """The answer, with the ids of the call in the request's ``metadata``.

        Raises ProviderFailed for a response without content, and what the module raises.
        """
        from amplifier_core.message_models import ChatRequest, ToolSpec

        tools = [
            ToolSpec(name=one.name, description=one.description, parameters=dict(one.parameters))
            for one in request.tools
        ]
        ids = request.ids
        metadata = {**ids.as_fields(), "traceparent": ids.traceparent()}
        response = await self._provider.complete(
            ChatRequest(
                messages=as_messages(request.messages),
                tools=tools or None,
                tool_choice=request.tool_choice,
                metadata=metadata,
            )
        )
        return self._answer(response)

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """The tools with the fields of Amplifier's ``ToolSpec``."""
        return [
            {"name": one.name, "description": one.description, "parameters": dict(one.parameters)}
            for one in tools
        ]

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """A call's outcome in the form that Amplifier's loops store."""
        return {
            "role": "tool",
            "tool_call_id": outcome.call.id,
            "name": outcome.call.name,
            "content": outcome.content,
        }

    def _answer(self, response: Any) -> Answer:
        content = getattr(response, "content", None)
        if not isinstance(content, list | str):
            raise ProviderFailed(
                self.name,
                f"expected a ChatResponse with content, found {type(response).__name__} with "
                f"{type(content).__name__}",
            )
        calls = tuple([self._call(one) for one in self._calls_of(response)])
        blocks = content if isinstance(content, str) else [_block(one) for one in content]
        message: dict[str, Any] = {"role": "assistant", "content": blocks}
        if calls:
            message["tool_calls"] = [
                {"id": one.id, "tool": one.name, "arguments": one.arguments} for one in calls
            ]
        metadata = getattr(response, "metadata", None)
        state = metadata if isinstance(metadata, dict) else {}
        if state:
            message["metadata"] = state
        return Answer(
            message,
            _text(blocks),
            calls,
            _named(getattr(response, "finish_reason", None)),
            _named(state.get("response_id")),
            _named(state.get("model")),
            read_usage(getattr(response, "usage", None), AMPLIFIER),
        )

    def _calls_of(self, response: Any) -> list[Any]:
        found = getattr(response, "tool_calls", None)
        parse = getattr(self._provider, "parse_tool_calls", None)
        if found is None and callable(parse):
            found = parse(response)
        if found is not None and not isinstance(found, list | tuple):
            raise ProviderFailed(self.name, f"expected a list of tool calls, found {found!r}")
        return list(found or ())

    def _call(self, call: Any) -> ToolRequest:
        if isinstance(call, dict):
            name, arguments = call.get("name", call.get("tool")), call.get("arguments")
            call_id = call.get("id")
        else:
            name, arguments = getattr(call, "name", None), getattr(call, "arguments", None)
            call_id = getattr(call, "id", None)
        if not isinstance(call_id, str) or not isinstance(name, str):
            raise ProviderFailed(
                self.name, f"expected a tool call with id and name, found {call!r}"
            )
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            problem = f"expected an object, found {type(arguments).__name__}"
            return ToolRequest(call_id, name, {}, problem)
        return ToolRequest(call_id, name, arguments)


def _block(block: Any) -> Any:
    dump = getattr(block, "model_dump", None)
    return dump() if callable(dump) else block


def _text(blocks: Any) -> str:
    if isinstance(blocks, str):
        return blocks
    texts = [one.get("text") for one in blocks if isinstance(one, dict) and one["type"] == "text"]
    return "\n\n".join([text for text in texts if isinstance(text, str)])


def _named(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
