"""OpenAI's chat completions, and servers that speak them, through the ``openai`` SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from eventctx.log.usage import OPENAI_CHAT, read_usage
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
)
from eventctx.orchestrators.providers import failures
from eventctx.orchestrators.providers.sdk_calling import Client, client_of, read_arguments, window
from eventctx.orchestrators.providers.sdk_provider import SdkProvider, without_host_keys


class OpenAIChatProvider(SdkProvider):
    """Asks a model by chat completions.

    ``client`` is an ``AsyncOpenAI`` of yours (with the ``base_url`` of a compatible server, such as
    DeepSeek or vLLM; then ``name`` is that server's), an ``AsyncAzureOpenAI``, or None for one made
    from the environment. ``context_window`` and ``max_output_tokens``, in tokens, let the context
    fit its requests to the model; the latter is by default the option ``max_completion_tokens`` or
    ``max_tokens``. Everything in ``options`` goes into each request; ``tools`` (a server's own)
    after those of a request. With ``propagate`` a request carries its span as the W3C header
    ``traceparent``. Raises InvalidSetting.
    """

    ENDPOINT = "chat.completions"

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
        largest = options.get("max_completion_tokens") or options.get("max_tokens")
        info = window(context_window, max_output_tokens or largest)
        self._stream_options = options.pop("stream_options", {"include_usage": True})
        super().__init__(name, model, info, usable(client), options, propagate)

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """A row of role ``tool``. Only its text shows a failure; the API has no field for it."""
        return {"role": "tool", "tool_call_id": outcome.call.id, "content": outcome.content}

    def _definition(self, tool: ToolDefinition) -> dict[str, Any]:
        function = {"name": tool.name, "description": tool.description}
        return {"type": "function", "function": {**function, "parameters": dict(tool.parameters)}}

    def _conversation(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"messages": [without_host_keys(row) for row in rows]}

    def _stream_arguments(self) -> dict[str, Any]:
        options = self._stream_options
        return {} if options is None else {"stream_options": options}

    def _collector(self) -> StreamedCompletion:
        return StreamedCompletion()

    def _answer(self, body: dict[str, Any], problems: Mapping[str, str]) -> Answer:
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        received = choice.get("message") if isinstance(choice, dict) else None
        if (
            not isinstance(choice, dict)
            or not isinstance(received, dict)
            or not _has_calls(received)
        ):
            raise failures.unusable(self.name, "a completion with a choice", body)
        message = _stored(received)
        calls = message.get("tool_calls", ())
        return Answer(
            message=message,
            text=_text(message.get("content")) or message.get("refusal") or "",
            calls=tuple(_call(call) for call in calls if "function" in call),
            finish_reason=choice.get("finish_reason"),
            response_id=body.get("id"),
            model=body.get("model"),
            usage=read_usage(body.get("usage"), OPENAI_CHAT),
        )


def _has_calls(message: dict[str, Any]) -> bool:
    """Whether its calls, if any, can be read; a call without a function is a server's own."""
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(
        isinstance(call, dict) and isinstance(call.get("function", {}), dict) for call in calls
    )


def _stored(received: dict[str, Any]) -> dict[str, Any]:
    """The message in a form that can be sent back: no nulls, empty lists or places in a stream.

    ``reasoning_content`` stays: DeepSeek wants it back within a tool loop.
    """
    message = {k: v for k, v in received.items() if v not in (None, []) or k == "content"}
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


_SHOWN: Final[dict[str, Literal["text", "thinking"]]] = {
    "reasoning_content": "thinking",
    "reasoning": "thinking",
    "content": "text",
    "refusal": "text",
}


class StreamedCompletion:
    """Takes the parts of one completion in order (``sdk_provider.AnswerCollector``).

    Arguments stay texts here, so there are no ``problems`` yet.
    """

    problems: Final[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls: dict[object, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None
        self._block = -1
        self._kind: str | None = None

    @property
    def whole(self) -> bool:
        """Whether a part gave a reason to finish, which only the last part of a choice does."""
        return self._finish is not None

    @property
    def body(self) -> dict[str, Any]:
        """The completion, as far as it came."""
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        choice = {"message": message, "finish_reason": self._finish}
        return {**self._head, "choices": [choice], "usage": self._usage}

    def take(self, part: dict[str, Any]) -> list[Chunk]:
        """Add a part, and return the chunks to show."""
        for key in ("id", "model"):
            if part.get(key):
                self._head.setdefault(key, part[key])
        if part.get("usage"):
            self._usage = part["usage"]
        shown: list[Chunk] = []
        for choice in part.get("choices") or ():
            # A part may name its choice; only one choice is requested.
            if choice.get("index", 0) == 0:
                shown += self._grow(choice.get("delta") or {})
                self._finish = choice.get("finish_reason") or self._finish
        return shown

    def _grow(self, delta: dict[str, Any]) -> Iterator[Chunk]:
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    self._grow_call(call)
            elif isinstance(value, str) and key != "role":
                self._message[key] = (self._message.get(key) or "") + value
            elif isinstance(value, list):
                self._message[key] = [*self._message.get(key, ()), *value]
            elif value is not None or key not in self._message:
                self._message[key] = value
            if key in _SHOWN and value:
                yield self._chunk(_SHOWN[key], value)

    def _chunk(self, kind: Literal["text", "thinking"], text: str) -> Chunk:
        if kind != self._kind:
            self._kind = kind
            self._block += 1
        return Chunk(kind, text, self._block)

    def _grow_call(self, part: dict[str, Any]) -> None:
        """Add a part of a call.

        Only arguments come in pieces; some servers repeat name and id with each piece. A server
        that leaves ``index`` out sends whole calls.
        """
        place = part.get("index")
        call = self._calls.setdefault(part.get("id") if place is None else place, {})
        for key, value in part.items():
            if key == "function":
                function = call.setdefault("function", {"name": "", "arguments": ""})
                function["arguments"] += value.get("arguments") or ""
                function.update({k: v for k, v in value.items() if v and k != "arguments"})
            elif value is not None and key != "index":
                call[key] = value


LOWEST: Final = "1.98"
"""The oldest release that passes on the errors inside a stream of the Responses API."""


def usable(client: Any) -> Client:
    """The client, or one from the environment, without its retries. Raises InvalidSetting."""
    return client_of(client, "openai", LOWEST, _classes)


def _classes() -> tuple[str, type, type, type[Exception]]:
    import openai

    return openai.__version__, openai.AsyncOpenAI, openai.OpenAI, openai.OpenAIError
