"""Claude through the ``anthropic`` SDK: the Messages API and its own dialect of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from eventctx.errors import CompactionError
from eventctx.log.turn_recorder import read_settings, read_transformed
from eventctx.log.usage import ANTHROPIC, read_usage
from eventctx.messages.native_compaction import (
    BETA_HEADER,
    ON_DEMAND,
    beta_of,
    compacts_on_demand,
)
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    Ids,
    ToolDefinition,
    ToolOutcome,
    ToolRequest,
)
from eventctx.orchestrators.providers import failures
from eventctx.orchestrators.providers.sdk_calling import client_of, read_arguments, window
from eventctx.orchestrators.providers.sdk_provider import SdkProvider

LOWEST: Final = "0.47"
"""The oldest release that supports thinking."""

_SYSTEM: Final = ("system", "developer")


class AnthropicProvider(SdkProvider):
    """Asks a model of the Messages API.

    ``client`` is an ``AsyncAnthropic`` of yours, or another asynchronous client of its SDK
    (Bedrock, Vertex, …); None makes one from the environment. ``max_tokens`` is the largest
    answer, thinking included. ``context_window``, in tokens, lets the context fit its requests to
    the model. Everything in ``options`` goes into each request (``thinking``, ``timeout``,
    ``extra_headers``, ``extra_body`` for what the SDK does not name, …); the context is told
    ``thinking``, so that it keeps what this model asks for; ``system`` comes before
    the context's system messages, ``tools`` (a server's own) after those of a request. With
    ``propagate`` a request carries its span as the W3C header ``traceparent``. Raises
    InvalidSetting.
    """

    ENDPOINT = "messages"
    NO_CALL: ClassVar[Any] = {"type": "none"}

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
        self._max_tokens = max_tokens
        given = options.get("thinking")
        self.thinking = given if isinstance(given, Mapping) else None
        self._system = _system_blocks(options.pop("system", None))
        info = window(context_window, max_tokens)
        usable = client_of(client, "anthropic", LOWEST, _classes)
        super().__init__(name, model, info, usable, options, propagate)
        managed = {**options, **self._connection.extra_body}.get("context_management")
        self.call_settings = self.call_settings._replace(
            max_tokens=max_tokens, clears=read_settings(managed=managed).clears
        )

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

    def _definition(self, tool: ToolDefinition) -> dict[str, Any]:
        schema = dict(tool.parameters)
        return {"name": tool.name, "description": tool.description, "input_schema": schema}

    def _conversation(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        system, messages = list(self._system), []
        for row in rows:
            if row.get("role") in _SYSTEM:
                system += _system_blocks(row.get("content"))
            else:
                messages.append({"role": row.get("role"), "content": row.get("content")})
        arguments = {"max_tokens": self._max_tokens, "messages": _results_together(messages)}
        if (beta := beta_of(messages)) is not None:
            arguments[BETA_HEADER] = beta
        if system:
            # A single plain text is sent as a text; blocks are for several, and for cache_control.
            lone = len(system) == 1 and system[0].keys() == {"type", "text"}
            arguments["system"] = system[0]["text"] if lone else system
        return arguments

    async def _summary_of(
        self, rows: Sequence[dict[str, Any]], instructions: str | None
    ) -> dict[str, Any]:
        if not compacts_on_demand(self.model):
            raise CompactionError(f"model {self.model!r}: its API compacts nothing on demand")
        asked: dict[str, Any] = {"type": "summarize"}
        if instructions:
            asked["instructions"] = instructions
        arguments: dict[str, Any] = {"model": self.model, **self._conversation([*rows])}
        if tools := self._last_tools or self._tools:
            arguments["tools"] = tools
        arguments["extra_body"] = {**self._connection.extra_body, "compaction": asked}
        arguments["extra_body"].pop("context_management", None)  # not together with it
        arguments[BETA_HEADER] = ON_DEMAND
        return await self._connection.ask(arguments, Ids(""), ("context_management",))

    def _collector(self) -> StreamedMessage:
        return StreamedMessage()

    def _answer(self, body: dict[str, Any], problems: Mapping[str, str]) -> Answer:
        content = body.get("content")
        if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
            raise failures.unusable(self.name, "a message with content blocks", body)
        # The API refuses the SDK's nulls, such as "citations": null, in a block that is sent back.
        blocks = [{k: v for k, v in block.items() if v is not None} for block in content]
        return Answer(
            message={"role": "assistant", "content": blocks},
            text="".join(block.get("text", "") for block in blocks if _kind(block) == "text"),
            calls=tuple(_call(block, problems) for block in blocks if _kind(block) == "tool_use"),
            finish_reason=body.get("stop_reason"),
            response_id=body.get("id"),
            model=body.get("model"),
            usage=read_usage(body.get("usage"), ANTHROPIC),
            transformed=read_transformed(
                body.get("input_transformations"), body.get("context_management")
            ),
        )


def _classes() -> tuple[str, type, type, type[Exception]]:
    import anthropic

    errors = anthropic.AnthropicError
    return anthropic.__version__, anthropic.AsyncAnthropic, anthropic.Anthropic, errors


def _system_blocks(content: Any) -> list[dict[str, Any]]:
    """The blocks of a system prompt, without empty texts, which the API refuses."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [block for block in content or () if not _is_empty_text(block)]


def _is_empty_text(block: Any) -> bool:
    return _kind(block) == "text" and not str(block.get("text") or "").strip()


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _results_together(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, with the results of parallel calls joined into one.

    The context has a message for each result. The API wants all of them in the one message after
    the calls (Claude's documentation, "Parallel tool use").
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
        and all(_kind(block) == "tool_result" for block in content)
    )


def _call(block: dict[str, Any], problems: Mapping[str, str]) -> ToolRequest:
    call_id = str(block.get("id"))
    arguments, problem = read_arguments(block.get("input"))
    return ToolRequest(call_id, str(block.get("name")), arguments, problems.get(call_id, problem))


class StreamedMessage:
    """Takes the events of one message in order (``sdk_provider.AnswerCollector``)."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {}
        self.problems: dict[str, str] = {}
        self.whole = False
        self._inputs: dict[int, list[str]] = {}

    def take(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Add an event, and yield the chunks to show."""
        match event.get("type"):
            case "message_start":
                self.body = {**event["message"], "content": []}
            case "content_block_start":
                self.body["content"].append(dict(event["content_block"]))
                yield from self._shown(event["index"], event["content_block"])
            case "content_block_delta":
                yield from self._grow(event["index"], event["delta"])
            case "content_block_stop":
                self._close(event["index"])
            case "message_delta":
                self.body.update(event["delta"])
                counted = {k: v for k, v in event.get("usage", {}).items() if v is not None}
                self.body["usage"] = {**self.body.get("usage", {}), **counted}
                told = ("input_transformations", "context_management")
                self.body.update({key: event[key] for key in told if event.get(key) is not None})
            case "message_stop":
                self.whole = True

    def _grow(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        block = self.body["content"][index]
        match delta["type"]:
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
                return
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
                return
        # Other deltas, and those of later releases, continue the texts of the same names.
        for name, more in delta.items():
            if name != "type" and isinstance(more, str):
                block[name] = (block.get(name) or "") + more
        yield from self._shown(index, delta)

    def _shown(self, index: int, part: dict[str, Any]) -> Iterator[Chunk]:
        if text := part.get("text"):
            yield Chunk("text", text, index)
        elif thinking := part.get("thinking"):
            yield Chunk("thinking", thinking, index)

    def _close(self, index: int) -> None:
        pieces = self._inputs.pop(index, None)
        if pieces is None:
            return
        block = self.body["content"][index]
        block["input"], problem = read_arguments("".join(pieces))
        if problem is not None:
            self.problems[block["id"]] = problem
