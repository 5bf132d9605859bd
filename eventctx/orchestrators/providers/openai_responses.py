"""OpenAI's Responses API through the ``openai`` SDK, without state at the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal

from eventctx.log.usage import OPENAI_RESPONSES, read_usage
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    Request,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
)
from eventctx.orchestrators.providers import sdk_failing
from eventctx.orchestrators.providers.arguments import read_arguments
from eventctx.orchestrators.providers.openai_client import usable
from eventctx.orchestrators.providers.sdk_calling import Connection, window

_DELTAS: Final[dict[str, Literal["text", "thinking"]]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning_summary_text.delta": "thinking",
}
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_ENCRYPTED: Final = "reasoning.encrypted_content"


class OpenAIResponsesProvider:
    """Asks a model by the Responses API; the whole conversation goes with each request.

    ``client`` is an ``AsyncOpenAI`` of yours, or None for one made from the environment. Nothing is
    stored at the server (``store=False``): reasoning comes encrypted, is kept in the context, and
    goes back. ``encrypted_reasoning=False`` is for models that do not reason, which refuse to be
    asked for it. ``max_output_tokens`` is the largest answer, reasoning included;
    ``context_window``, in tokens, lets the context fit its requests to the model. Everything in
    ``options`` goes into each request (``instructions``, ``reasoning``, …); ``tools`` (a server's
    own) behind those of a request. With ``propagate`` a request carries its span as the W3C header
    ``traceparent``. Raises InvalidSetting.
    """

    def __init__(
        self,
        client: Any,
        model: str,
        *,
        name: str = "openai",
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        encrypted_reasoning: bool = True,
        propagate: bool = True,
        **options: Any,
    ) -> None:
        self.name = name
        self.model = model
        self._info = window(context_window, max_output_tokens)
        self._tools = list(options.pop("tools", None) or ())
        include = list(options.pop("include", None) or ())
        if encrypted_reasoning and _ENCRYPTED not in include:
            include.append(_ENCRYPTED)
        options = {"store": False, **options, "max_output_tokens": max_output_tokens}
        options["include"] = include or None
        self._client = usable(client)
        self._connection = Connection(name, self._client.sdk.responses, options, propagate)

    async def aclose(self) -> None:
        """Close the client that was made from the environment; yours stays open."""
        await self._client.aclose()

    def get_info(self) -> dict[str, int]:
        """``context_window`` and ``max_output_tokens`` for the budget, where they are known."""
        return self._info

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """Each tool as ``{"type": "function", "name", "description", "parameters", "strict"}``.

        Not strict: a schema need not be of the subset that strict ones are held to, which is what
        this API takes them to be unless it is told.
        """
        return [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": dict(t.parameters),
                "strict": False,
            }
            for t in tools
        ]

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """An item ``function_call_output``. That a call failed is said by its text."""
        return {
            "type": "function_call_output",
            "call_id": outcome.call.id,
            "output": outcome.content,
        }

    async def complete(self, request: Request) -> Answer:
        """The whole answer. Raises ProviderFailed."""
        body = await self._connection.ask(self._arguments(request), request.ids)
        return _answer(self.name, body)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk | Answer, None]:
        """Chunks as they come, and last what ``complete`` answers. Raises ProviderFailed."""
        response: dict[str, Any] | None = None
        async with aclosing(
            self._connection.listen(self._arguments(request), request.ids)
        ) as events:
            async for event in events:
                kind = event.get("type")
                if kind == "error":
                    raise sdk_failing.told(self.name, event)
                if kind in _DELTAS and event.get("delta"):
                    yield Chunk(_DELTAS[kind], event["delta"], event.get("output_index", 0))
                elif kind in _ENDS:
                    response = event.get("response") or {}
        if response is None:
            raise sdk_failing.cut(self.name)
        yield _answer(self.name, response)

    def _arguments(self, request: Request) -> dict[str, Any]:
        rows = [item for item in request.messages if not _says_nothing(item)]
        items = [_sent(item) for item in _without_lone_reasoning(rows)]
        arguments: dict[str, Any] = {"model": self.model, "input": items}
        if tools := self.definitions(request.tools) + self._tools:
            arguments["tools"] = tools
        return arguments


def _sent(item: dict[str, Any]) -> dict[str, Any]:
    """An item as stored, without a host's ``metadata``: the API refuses keys it does not know."""
    return {key: value for key, value in item.items() if key != "metadata"}


def _says_nothing(item: dict[str, Any]) -> bool:
    """A message of the assistant without content; the API refuses it."""
    return item.get("role") == "assistant" and not item.get("content")


def _without_lone_reasoning(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out reasoning that no item of its answer follows, which the API refuses.

    A model that reached its limit, or a process that was killed, left it so.
    """
    kept: list[dict[str, Any]] = []
    for item in reversed(items):
        if item.get("type") != "reasoning" or (kept and not _is_given(kept[-1])):
            kept.append(item)
    return kept[::-1]


def _is_given(item: dict[str, Any]) -> bool:
    """Whether the model was given it: what is new to us is more likely a part of an answer."""
    role = item.get("role", "assistant")
    return role != "assistant" or str(item.get("type")).endswith("_output")


def _answer(provider: str, body: dict[str, Any]) -> Answer:
    if isinstance(body.get("error"), dict):
        raise sdk_failing.told(provider, body)
    output, status = body.get("output"), body.get("status")
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise sdk_failing.unusable(provider, "a response with output items", body)
    if status not in ("completed", "incomplete"):
        raise sdk_failing.unusable(provider, "a response that is completed", status)
    # The nulls, such as "status": null of reasoning, are refused where an item is sent back.
    items = [{k: v for k, v in item.items() if v is not None} for item in output]
    if not items:
        items = [{"type": "message", "role": "assistant", "content": []}]
    return Answer(
        message=items[0],
        more=tuple(items[1:]),
        text="".join(map(_text, items)),
        calls=tuple(_call(item) for item in items if item.get("type") == "function_call"),
        finish_reason=(body.get("incomplete_details") or {}).get("reason") or status,
        response_id=body.get("id"),
        model=body.get("model"),
        usage=read_usage(body.get("usage"), OPENAI_RESPONSES),
    )


def _text(item: dict[str, Any]) -> str:
    parts = item.get("content") if item.get("type") == "message" else None
    return "".join(
        part.get("text") or part.get("refusal") or ""
        for part in parts or ()
        if isinstance(part, dict)
    )


def _call(item: dict[str, Any]) -> ToolRequest:
    arguments, problem = read_arguments(item.get("arguments"))
    return ToolRequest(str(item.get("call_id")), str(item.get("name")), arguments, problem)
