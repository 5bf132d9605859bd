"""OpenAI's chat completions, and servers that speak them, through the ``openai`` SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from eventctx.log.usage import OPENAI_CHAT, read_usage
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
from eventctx.orchestrators.providers.openai_chat_stream import StreamedCompletion
from eventctx.orchestrators.providers.openai_client import usable
from eventctx.orchestrators.providers.sdk_calling import Connection, window


class OpenAIChatProvider:
    """Asks a model by chat completions.

    ``client`` is an ``AsyncOpenAI`` of yours (with the ``base_url`` of a compatible server, such as
    DeepSeek or vLLM; then ``name`` says whose it is), an ``AsyncAzureOpenAI``, or None for one made
    from the environment. ``context_window`` and ``max_output_tokens``, in tokens, let the context
    fit its requests to the model; the latter is by default the option ``max_completion_tokens`` or
    ``max_tokens``. Everything in ``options`` goes into each request; ``tools`` (a server's own)
    behind those of a request. With ``propagate`` a request carries its span as the W3C header
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
        propagate: bool = True,
        **options: Any,
    ) -> None:
        self.name = name
        self.model = model
        largest = options.get("max_completion_tokens") or options.get("max_tokens")
        self._info = window(context_window, max_output_tokens or largest)
        self._tools = list(options.pop("tools", None) or ())
        self._stream_options = options.pop("stream_options", {"include_usage": True})
        self._client = usable(client)
        self._connection = Connection(name, self._client.sdk.chat.completions, options, propagate)

    async def aclose(self) -> None:
        """Close the client that was made from the environment; yours stays open."""
        await self._client.aclose()

    def get_info(self) -> dict[str, int]:
        """``context_window`` and ``max_output_tokens`` for the budget, where they are known."""
        return self._info

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """Each tool as ``{"type": "function", "function": {…}}``."""
        return [
            {
                "type": "function",
                "function": {
                    "name": t.name,
                    "description": t.description,
                    "parameters": dict(t.parameters),
                },
            }
            for t in tools
        ]

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """A row of role ``tool``. That a call failed is said by its text: there is no field."""
        return {"role": "tool", "tool_call_id": outcome.call.id, "content": outcome.content}

    async def complete(self, request: Request) -> Answer:
        """The whole answer. Raises ProviderFailed."""
        body = await self._connection.ask(self._arguments(request), request.ids)
        return _answer(self.name, body)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk | Answer, None]:
        """Chunks as they come, and last what ``complete`` answers. Raises ProviderFailed."""
        completion = StreamedCompletion()
        arguments = self._arguments(request)
        if self._stream_options is not None:
            arguments["stream_options"] = self._stream_options
        async with aclosing(self._connection.listen(arguments, request.ids)) as events:
            async for event in events:
                try:
                    chunks = completion.take(event)
                except (KeyError, IndexError, TypeError, AttributeError) as error:
                    raise sdk_failing.unusable(
                        self.name, "a part of a completion", event
                    ) from error
                for chunk in chunks:
                    yield chunk
        if not completion.whole:
            raise sdk_failing.cut(self.name)
        yield _answer(self.name, completion.body)

    def _arguments(self, request: Request) -> dict[str, Any]:
        rows = [_sent(row) for row in request.messages if not _says_nothing(row)]
        arguments: dict[str, Any] = {"model": self.model, "messages": rows}
        if tools := self.definitions(request.tools) + self._tools:
            arguments["tools"] = tools
        return arguments


def _sent(row: dict[str, Any]) -> dict[str, Any]:
    """A row as stored, without a host's ``metadata``: the API refuses unknown keys."""
    return {key: value for key, value in row.items() if key != "metadata"}


def _says_nothing(row: dict[str, Any]) -> bool:
    """An assistant's row that holds neither words nor calls; the API refuses it."""
    held = ("content", "tool_calls", "function_call", "refusal", "audio")
    return row.get("role") == "assistant" and not any(row.get(key) for key in held)


def _answer(provider: str, body: dict[str, Any]) -> Answer:
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    said = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(said, dict) or not _has_calls(said):
        raise sdk_failing.unusable(provider, "a completion with a choice", body)
    message = _stored(said)
    return Answer(
        message=message,
        text=_text(message.get("content")) or message.get("refusal") or "",
        calls=tuple(_call(call) for call in message.get("tool_calls", ()) if "function" in call),
        finish_reason=choice.get("finish_reason"),
        response_id=body.get("id"),
        model=body.get("model"),
        usage=read_usage(body.get("usage"), OPENAI_CHAT),
    )


def _has_calls(said: dict[str, Any]) -> bool:
    """Whether its calls, if any, can be read; one without a function is a server's own."""
    calls = said.get("tool_calls") or []
    return isinstance(calls, list) and all(
        isinstance(call, dict) and isinstance(call.get("function", {}), dict) for call in calls
    )


def _stored(said: dict[str, Any]) -> dict[str, Any]:
    """The message as it can be sent back: no nulls, no empty lists, no places in a stream.

    ``reasoning_content`` stays: DeepSeek wants it back within a tool loop.
    """
    message = {k: v for k, v in said.items() if v not in (None, []) or k == "content"}
    message = {"role": "assistant", "content": None, **message}
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in calls]
    return message


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(part.get("text", "") for part in parts if isinstance(part, dict))


def _call(call: dict[str, Any]) -> ToolRequest:
    function = call["function"]
    arguments, problem = read_arguments(function.get("arguments"))
    return ToolRequest(str(call.get("id")), str(function.get("name")), arguments, problem)
