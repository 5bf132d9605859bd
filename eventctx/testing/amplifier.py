"""A scripted provider for Amplifier's orchestrators. Needs amplifier-core when it is used."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.testing.dialects import amplifier_blocks, finish_reason
from eventctx.testing.requests import check_request
from eventctx.testing.script import Reply, Script, Step, requests_of


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
