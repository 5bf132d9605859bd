"""A provider that answers from a script and is as strict as a real API."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from importlib import import_module
from typing import Any, get_args

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    Request,
    ToolDefinition,
    ToolOutcome,
)
from eventctx.testing import dialects
from eventctx.testing.dialects import Dialect, amplifier_blocks, finish_reason
from eventctx.testing.requests import check_request
from eventctx.testing.script import Reply, Script, Step, requests_of


class ProviderInfo(msgspec.Struct, frozen=True):
    """The result of ``get_info``: the model's limits, where context managers look for them."""

    id: str
    display_name: str
    defaults: dict[str, int]


class ScriptedProvider:
    """Answers each request with the next step of its script; streams, too.

    A step is a text, a ``Reply`` (text, calls, thinking, usage), an error to raise, or a function
    of the ``Request`` that returns one of these, async or not. ``requests`` are deep copies of
    the requests. A request that a real API would refuse raises AssertionError, with the numbers of
    the messages, unless ``strict=False``; so does one more request than the script has steps.
    ``get_info`` returns ``context_window`` and ``max_output_tokens``.
    """

    takes_tool_choice = True

    def __init__(
        self,
        *script: Step,
        dialect: Dialect = "anthropic",
        name: str = "scripted",
        model: str | None = "scripted-1",
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        strict: bool = True,
    ) -> None:
        if dialect not in get_args(Dialect):
            raise InvalidSetting(f"dialect: expected one of {get_args(Dialect)}, found {dialect!r}")
        self.name = name
        self.model = model
        self.dialect = dialect
        self.strict = strict
        self.requests: list[Request] = []
        self._script = Script(script)
        limits = {"context_window": context_window, "max_output_tokens": max_output_tokens}
        self._limits = {key: value for key, value in limits.items() if value is not None}

    @property
    def remaining(self) -> int:
        """Steps of the script that were not played yet."""
        return self._script.remaining

    def get_info(self) -> ProviderInfo:
        """The model's limits, in tokens, as far as they were given."""
        return ProviderInfo(self.name, self.name, dict(self._limits))

    async def complete(self, request: Request) -> Answer:
        """The next step's answer. Raises its error, and AssertionError (see the class)."""
        return self._answer(await self._next(request))

    async def stream(self, request: Request) -> AsyncIterator[Chunk | Answer]:
        """The next step's answer word by word, and then as a whole."""
        reply = await self._next(request)
        block = 0
        if reply.thinking is not None:
            for piece in _pieces(reply.thinking):
                yield Chunk("thinking", piece, block)
            block += 1
        for piece in _pieces(reply.text):
            yield Chunk("text", piece, block)
        yield self._answer(reply)

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """The tools in the dialect's form."""
        return [dialects.definition(tool, self.dialect) for tool in tools]

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """A call's outcome in the dialect's form."""
        return dialects.result_message(outcome, self.dialect)

    async def _next(self, request: Request) -> Reply:
        self.requests.append(copy.deepcopy(request))
        if self.strict:
            check_request(request.messages, f"request {len(self.requests)}")
        return await self._script.next(request)

    def _answer(self, reply: Reply) -> Answer:
        return Answer(
            message=dialects.answer_message(reply, self.dialect),
            text=reply.text,
            calls=requests_of(reply),
            finish_reason=dialects.finish_reason(reply, self.dialect),
            response_id=reply.response_id or f"response_{len(self.requests)}",
            model=self.model,
            usage=reply.usage,
        )


def _pieces(text: str) -> list[str]:
    """Words, each with the space before it, so that they add up to the text."""
    words = text.split(" ")
    return [word if place == 0 else f" {word}" for place, word in enumerate(words)] if text else []


def core(module: str = "amplifier_core") -> Any:
    """A module of Amplifier's core. Raises InvalidSetting when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidSetting(
            "this needs Amplifier: expected the package amplifier-core, found none; "
            "pip install 'eventctx[amplifier]'"
        ) from error


class ScriptedAmplifierProvider:
    """An Amplifier provider that answers ``ChatRequest`` with the next step of its script.

    Steps are those of ``ScriptedProvider``; a function gets the ``ChatRequest``. ``requests`` are
    deep copies of the requests, ``messages`` their messages as dicts. The strict checks are the
    same. Usage is reported for every answer, the script's or zeros, because Amplifier's own loops
    read it.
    """

    def __init__(
        self,
        *script: Step,
        name: str = "scripted",
        model: str = "scripted-1",
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        strict: bool = True,
    ) -> None:
        self.name = name
        self.model = model
        self.strict = strict
        self.requests: list[Any] = []
        self.messages: list[list[dict[str, Any]]] = []
        self._script = Script(script)
        limits = {"context_window": context_window, "max_output_tokens": max_output_tokens}
        self._limits = {key: value for key, value in limits.items() if value is not None}

    @property
    def remaining(self) -> int:
        """Steps of the script that were not played yet."""
        return self._script.remaining

    def get_info(self) -> Any:
        """An ``amplifier_core.ProviderInfo`` with the limits, in tokens, in ``defaults``."""
        return core().ProviderInfo(
            id=self.name, display_name=self.name, defaults={"model": self.model, **self._limits}
        )

    async def list_models(self) -> list[Any]:
        """An empty list: in Amplifier the user then enters a model's name."""
        return []

    async def complete(self, request: Any, **options: Any) -> Any:
        """A ``ChatResponse``. Raises the step's error, and AssertionError (see the class)."""
        rows = [message.model_dump(exclude_none=True) for message in request.messages]
        self.requests.append(copy.deepcopy(request))
        self.messages.append(rows)
        if self.strict:
            check_request(rows, f"request {len(self.requests)}")
        return self._response(await self._script.next(request))

    def parse_tool_calls(self, response: Any) -> list[Any]:
        """The calls of a response."""
        return list(response.tool_calls or [])

    def _response(self, reply: Reply) -> Any:
        models = core("amplifier_core.message_models")
        calls = [
            models.ToolCall(id=call.id, name=call.name, arguments=call.arguments)
            for call in requests_of(reply)
        ]
        counted = msgspec.to_builtins(reply.usage) if reply.usage is not None else {}
        prompt, output = counted.get("prompt", 0), counted.get("output", 0)
        return models.ChatResponse(
            content=amplifier_blocks(reply),
            tool_calls=calls or None,
            usage=models.Usage(
                input_tokens=prompt,
                output_tokens=output,
                total_tokens=prompt + output,
                cache_read_tokens=counted.get("cache_read"),
                cache_write_tokens=counted.get("cache_write"),
                reasoning_tokens=counted.get("reasoning"),
            ),
            finish_reason=finish_reason(reply, "amplifier"),
        )
