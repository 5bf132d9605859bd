"""Claude through the ``anthropic`` SDK: Messages API, messages in its own block dialect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from eventctx.log.usage import ANTHROPIC, read_usage
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    Request,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
)
from eventctx.orchestrators.providers import sdk_failing
from eventctx.orchestrators.providers.anthropic_stream import StreamedMessage
from eventctx.orchestrators.providers.arguments import read_arguments
from eventctx.orchestrators.providers.sdk_calling import (
    Client,
    Connection,
    is_older,
    missing,
    window,
    without_retries,
)

LOWEST: Final = "0.47"
"""The oldest release that knows of thinking."""

_SYSTEM: Final = ("system", "developer")
_THINKING: Final = ("thinking", "redacted_thinking")


class AnthropicProvider:
    """Asks a model of the Messages API.

    ``client`` is an ``AsyncAnthropic`` of yours, or another asynchronous client of its SDK
    (Bedrock, Vertex, …); None makes one from the environment. ``max_tokens`` is the largest
    answer, thinking included. ``context_window``, in tokens, lets the context fit its requests to
    the model. Everything in ``options`` goes into each request (``thinking``, ``timeout``,
    ``extra_headers``, ``extra_body`` for what the SDK does not name, …); ``system`` comes before
    the context's system messages, ``tools`` (a server's own) behind those of a request. With
    ``propagate`` a request carries its span as the W3C header ``traceparent``. Raises
    InvalidSetting.
    """

    def __init__(
        self,
        client: Any,
        model: str,
        max_tokens: int = 8_192,
        *,
        name: str = "anthropic",
        context_window: int | None = None,
        propagate: bool = True,
        **options: Any,
    ) -> None:
        self.name = name
        self.model = model
        self._max_tokens = max_tokens
        self._info = window(context_window, max_tokens)
        self._system = _system_blocks(options.pop("system", None))
        self._tools = list(options.pop("tools", None) or ())
        self._client = _usable(client)
        self._connection = Connection(name, self._client.sdk.messages, options, propagate)

    async def aclose(self) -> None:
        """Close the client that was made from the environment; yours stays open."""
        await self._client.aclose()

    def get_info(self) -> dict[str, int]:
        """``context_window`` and ``max_output_tokens`` for the budget, where they are known."""
        return self._info

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """Each tool as ``{"name", "description", "input_schema"}``."""
        return [
            {"name": t.name, "description": t.description, "input_schema": dict(t.parameters)}
            for t in tools
        ]

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """A row of role ``user`` with one ``tool_result`` block."""
        block: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": outcome.call.id,
            "content": outcome.content,
        }
        if outcome.is_error:
            block["is_error"] = True
        return {"role": "user", "content": [block]}

    async def complete(self, request: Request) -> Answer:
        """The whole answer. Raises ProviderFailed."""
        body = await self._connection.ask(self._arguments(request), request.ids)
        return _answer(self.name, body, {})

    async def stream(self, request: Request) -> AsyncGenerator[Chunk | Answer, None]:
        """Chunks as they come, and last what ``complete`` answers. Raises ProviderFailed."""
        message = StreamedMessage()
        async with aclosing(
            self._connection.listen(self._arguments(request), request.ids)
        ) as events:
            async for event in events:
                try:
                    chunk = message.take(event)
                except (KeyError, IndexError, TypeError, AttributeError) as error:
                    raise sdk_failing.unusable(self.name, "an event of a message", event) from error
                if chunk is not None:
                    yield chunk
        if not message.whole:
            raise sdk_failing.cut(self.name)
        yield _answer(self.name, message.body, message.problems)

    def _arguments(self, request: Request) -> dict[str, Any]:
        system, messages = list(self._system), []
        for row in request.messages:
            if row.get("role") in _SYSTEM:
                system += _system_blocks(row.get("content"))
            elif content := _content(row):
                messages.append({"role": row.get("role"), "content": content})
        arguments: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self._max_tokens,
            "messages": _results_together(messages),
        }
        if system:
            # One plain text is sent as one: blocks are for several, and for cache_control.
            lone = len(system) == 1 and system[0].keys() == {"type", "text"}
            arguments["system"] = system[0]["text"] if lone else system
        if tools := self.definitions(request.tools) + self._tools:
            arguments["tools"] = tools
        return arguments


def _usable(client: Any) -> Client:
    try:
        import anthropic
    except ImportError as error:
        raise missing("anthropic", LOWEST) from error
    if is_older(anthropic.__version__, LOWEST):
        raise missing("anthropic", LOWEST, anthropic.__version__)
    made = anthropic.AsyncAnthropic() if client is None else client
    return without_retries(
        made, "an AsyncAnthropic or None", anthropic.Anthropic, made=client is None
    )


def _system_blocks(content: Any) -> list[dict[str, Any]]:
    """The API refuses an empty text, so it is left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [block for block in content or () if not _is_empty_text(block)]


def _content(row: dict[str, Any]) -> Any:
    """A row's content as stored, but for what models and people write and the API refuses.

    That is an empty text, and thinking at the end of an answer: a model that reached its
    ``max_tokens`` had nothing behind it. Stored, either would spoil every request to come.
    """
    content = row.get("content")
    if isinstance(content, str):
        return content if content.strip() else ""
    blocks = [block for block in content or () if not _is_empty_text(block)]
    while row.get("role") == "assistant" and blocks and _kind(blocks[-1]) in _THINKING:
        blocks.pop()
    return blocks


def _is_empty_text(block: Any) -> bool:
    return _kind(block) == "text" and not str(block.get("text") or "").strip()


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _results_together(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of parallel calls as one message.

    The API wants all of them in the message behind the calls (Claude's documentation, "Parallel
    tool use"); the context has a message for each.
    """
    together: list[dict[str, Any]] = []
    for message in messages:
        if together and _is_results(together[-1]) and _is_results(message):
            content = [*together[-1]["content"], *message["content"]]
            together[-1] = {"role": "user", "content": content}
        else:
            together.append(message)
    return together


def _is_results(message: dict[str, Any]) -> bool:
    content = message["content"]
    return (
        message["role"] == "user"
        and isinstance(content, list)
        and bool(content)
        and all(isinstance(b, dict) and b.get("type") == "tool_result" for b in content)
    )


def _answer(provider: str, body: dict[str, Any], problems: dict[str, str]) -> Answer:
    content = body.get("content")
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise sdk_failing.unusable(provider, "a message with content blocks", body)
    # The SDK's nulls, such as "citations": null, are refused where a block is sent back.
    blocks = [{k: v for k, v in block.items() if v is not None} for block in content]
    return Answer(
        message={"role": "assistant", "content": blocks},
        text="".join(block.get("text", "") for block in blocks if block.get("type") == "text"),
        calls=tuple(_call(block, problems) for block in blocks if block.get("type") == "tool_use"),
        finish_reason=body.get("stop_reason"),
        response_id=body.get("id"),
        model=body.get("model"),
        usage=read_usage(body.get("usage"), ANTHROPIC),
    )


def _call(block: dict[str, Any], problems: dict[str, str]) -> ToolRequest:
    call_id = str(block.get("id"))
    arguments, problem = read_arguments(block.get("input"))
    return ToolRequest(call_id, str(block.get("name")), arguments, problems.get(call_id, problem))
