"""OpenAI's Responses API through the ``openai`` SDK, without state on the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from eventctx.log.usage import OPENAI_RESPONSES, read_usage
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    Ids,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
)
from eventctx.orchestrators.providers import failures
from eventctx.orchestrators.providers.openai_chat import usable
from eventctx.orchestrators.providers.sdk_calling import read_arguments, window
from eventctx.orchestrators.providers.sdk_provider import SdkProvider, without_host_keys

_DELTAS: Final[dict[str, Literal["text", "thinking"]]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning_summary_text.delta": "thinking",
}
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_NOT_COMPACTED: Final = frozenset(
    (
        *("store", "include", "reasoning", "max_output_tokens", "tools", "tool_choice"),
        *("parallel_tool_calls", "text", "temperature", "top_p", "context_management"),
        *("truncation", "metadata", "background", "stream_options", "max_tool_calls"),
    )
)
"""Options of an answer, which `/responses/compact` does not take."""

_ENCRYPTED: Final = "reasoning.encrypted_content"


class OpenAIResponsesProvider(SdkProvider):
    """Asks a model by the Responses API; the whole conversation goes with each request.

    ``client`` is an ``AsyncOpenAI`` of yours, or None for one made from the environment. Nothing is
    stored on the server (``store=False``): reasoning comes encrypted, is kept in the context, and
    goes back. ``encrypted_reasoning=False`` is for models that do not reason, which refuse a
    request for it. ``max_output_tokens`` is the largest answer, reasoning included;
    ``context_window``, in tokens, lets the context fit its requests to the model. Everything in
    ``options`` goes into each request (``instructions``, ``reasoning``, …); ``tools`` (a server's
    own) after those of a request. With ``propagate`` a request carries its span as the W3C header
    ``traceparent``. Raises InvalidSetting.
    """

    ENDPOINT = "responses"

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
        info = window(context_window, max_output_tokens)
        include = list(options.pop("include", None) or ())
        if encrypted_reasoning and _ENCRYPTED not in include:
            include.append(_ENCRYPTED)
        options = {"store": False, **options, "max_output_tokens": max_output_tokens}
        options["include"] = include or None
        super().__init__(name, model, info, usable(client), options, propagate)

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """An item ``function_call_output``. A failure of the call is only in its text."""
        return {
            "type": "function_call_output",
            "call_id": outcome.call.id,
            "output": outcome.content,
        }

    def _definition(self, tool: ToolDefinition) -> dict[str, Any]:
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            # The API's default is strict, which allows only a subset of JSON schemas.
            "strict": False,
        }

    def _conversation(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"input": [without_host_keys(item) for item in rows]}

    async def _summary_of(
        self, rows: Sequence[dict[str, Any]], instructions: str | None
    ) -> dict[str, Any]:
        # The endpoint takes no instructions for a summary, but those of the conversation. Of its
        # answer the item alone is new: what the person said stays in the view as it is.
        arguments = {"model": self.model, **self._conversation([*rows])}
        return await self._connection.ask(arguments, Ids(""), _NOT_COMPACTED, "compact")

    def _collector(self) -> StreamedResponse:
        return StreamedResponse(self.name)

    def _answer(self, body: dict[str, Any], problems: Mapping[str, str]) -> Answer:
        if isinstance(body.get("error"), dict):
            raise failures.reported(self.name, body)
        output, status = body.get("output"), body.get("status")
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            raise failures.unusable(self.name, "a response with output items", body)
        if status not in ("completed", "incomplete"):
            raise failures.unusable(self.name, "a response that is completed", status)
        # The API refuses nulls, such as "status": null of reasoning, in an item that is sent back.
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


class StreamedResponse:
    """Takes the events of one response in order (``sdk_provider.AnswerCollector``).

    The last event repeats the whole response, so nothing is put together here.
    """

    problems: Final[Mapping[str, str]] = {}

    def __init__(self, provider: str) -> None:
        self.body: dict[str, Any] = {}
        self.whole = False
        self._provider = provider

    def take(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Take an event, and yield the chunks to show. Raises ProviderFailed for an error."""
        kind = event.get("type")
        if kind == "error":
            raise failures.reported(self._provider, event)
        if kind in _DELTAS and event.get("delta"):
            yield Chunk(_DELTAS[kind], event["delta"], event.get("output_index", 0))
        elif kind in _ENDS:
            self.body, self.whole = event.get("response") or {}, True


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
