"""Amplifier's provider modules as providers of an orchestrator.

A request's rows become ``Message`` objects. A ``ChatResponse`` becomes the row that Amplifier's own
loops store: content blocks as they came, with thinking and its signature, and the calls once more
in ``tool_calls``. So a session can change between our loops and theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import ProviderFailed
from eventctx.log.usage import AMPLIFIER, read_usage
from eventctx.messages.parts import Part, read_parts, role_of
from eventctx.orchestrators.protocol import (
    Answer,
    Request,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
)


class AmplifierProvider:
    """A provider module of Amplifier: ``complete(ChatRequest) -> ChatResponse``.

    ``provider`` is the module's object, ``name`` the one under which it is mounted. ``streams``
    False asks the module not to show pieces of an answer to the host, since it is for no person.
    """

    takes_tool_choice = True

    def __init__(self, provider: Any, name: str | None = None, *, streams: bool = True) -> None:
        self._provider = provider
        self._streams = streams
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
        metadata: dict[str, Any] = {**ids.as_fields(), "traceparent": ids.traceparent()}
        if not self._streams:
            metadata["stream"] = False  # the modules read it there
        response = await self._provider.complete(
            ChatRequest(
                messages=as_messages(request.messages),
                tools=tools or None,
                tool_choice=request.tool_choice,
                metadata=metadata,
                stream=None if self._streams else False,
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


_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "function", "tool"))
_KNOWN: Final = {
    "text": ("text",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
    "tool_call": ("id", "name", "input"),
    "tool_result": ("tool_call_id", "output"),
    "image": ("source",),
    "reasoning": ("content", "summary"),
}
"""Amplifier's blocks and the fields that each must have (``amplifier_core.message_models``)."""


# -- rows in any dialect as Amplifier's ``Message`` objects ----------------------------------------
#
# Amplifier's own rows pass as they are. Of the others the parts are put into Amplifier's words:
# calls become ``tool_call`` blocks, results rows in role ``tool``; what it has no word for, JSON.


def as_messages(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """``Message`` objects for the rows, in order; one with several tool results becomes several."""
    from amplifier_core.message_models import Message

    made: list[Any] = []
    for row in rows:
        try:
            message = None if _is_chat(row) else Message(**row)
        except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
            message = None
        made += [Message(**one) for one in converted(row)] if message is None else [message]
    return made


def _is_chat(row: dict[str, Any]) -> bool:
    """Whether calls or a refusal are OpenAI's: `Message` takes them, and no provider reads them."""
    calls = row.get("tool_calls")
    functions = isinstance(calls, list) and any("function" in one for one in calls)
    return functions or bool(row.get("refusal"))


def converted(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of another dialect in Amplifier's."""
    given = role_of(row) or "assistant"
    role = given if given in _ROLES else "user"
    parts = read_parts(row)
    if role in ("tool", "function"):
        return [_result(part) for part in parts if part.kind == "result"]
    if "role" not in row and row.get("type") == "reasoning":
        return [{"role": role, "content": [_reasoning(row)]}]
    if len(parts) == 1 and parts[0].place == ("content",) and parts[0].kind == "text":
        return [{"role": role, "content": parts[0].value}]
    results = [_result(part) for part in parts if _is_result(part)]
    # Reasoning apart from the content has no signature, without which no API takes it back.
    shown = [part for part in parts if part.kind != "thinking" or part.place[0] == "content"]
    blocks = [_block_of_part(part, row) for part in shown if not _is_result(part)]
    if not blocks:
        return results or [{"role": role, "content": ""}]
    message: dict[str, Any] = {"role": role, "content": blocks}
    made = [one for one in blocks if one["type"] == "tool_call"]
    if made:
        message["tool_calls"] = [
            {"id": one["id"], "tool": one["name"], "arguments": one["input"]} for one in made
        ]
    return [*results, message]


def _is_result(part: Part) -> bool:
    return part.kind == "result" and part.dialect != "amplifier"


def _result(part: Part) -> dict[str, Any]:
    row = {"role": "tool", "content": _as_text(part.value)}
    if part.ids:
        row["tool_call_id"] = part.ids[0]
    return row if part.name is None else {**row, "name": part.name}


def _block_of_part(part: Part, row: dict[str, Any]) -> dict[str, Any]:
    if part.kind == "call":
        return _call(part)
    if part.kind == "image" and part.type == "image_url":
        return {"type": "image", "source": _source(part.value.get("image_url"))}
    raw: Any = row["content"][part.place[1]] if len(part.place) > 1 else part.value
    if part.type == "reasoning":
        return _reasoning(raw)
    fields = _KNOWN.get(part.type)
    if fields is not None and isinstance(raw, dict) and all(name in raw for name in fields):
        return raw
    words = part.kind in ("text", "refusal")
    return {"type": "text", "text": part.value if words else msgspec.json.encode(raw).decode()}


def _reasoning(block: dict[str, Any]) -> dict[str, Any]:
    return {"content": [], "summary": [], **block}


def _source(image: Any) -> dict[str, Any]:
    url = str(image.get("url") if isinstance(image, dict) else image)
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "url", "url": url}


def _call(part: Part) -> dict[str, Any]:
    arguments = part.value
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": arguments}
    return {
        "type": "tool_call",
        "id": part.ids[0],
        "name": part.name or "None",
        "input": arguments if isinstance(arguments, dict) else {},
    }


def _as_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = content if isinstance(content, list) else [content]
    texts = [
        one["text"]
        if isinstance(one, dict) and isinstance(one.get("text"), str)
        else json.dumps(one, ensure_ascii=False)
        for one in parts
    ]
    return "\n".join(texts)
