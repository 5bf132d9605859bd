"""The common part of the providers that use an SDK: one endpoint, with the API's own JSON.

The provider of one API defines how a request, a tool, a result and an answer look in its dialect.
An ``AnswerCollector`` turns a streamed answer into the same JSON as a whole one, so that one
function reads both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Any, ClassVar, Final, Protocol

from eventctx.errors import CompactionError
from eventctx.log.turn_recorder import read_settings
from eventctx.orchestrators.protocol import Answer, Chunk, Request, ToolDefinition
from eventctx.orchestrators.providers import failures
from eventctx.orchestrators.providers.sdk_calling import Client, Connection
from eventctx.policies.advisers import ModelAnswer, SummaryRequest, summary_answer
from eventctx.projections.view.sendable.sending import sendable


class AnswerCollector(Protocol):
    """Puts the events of one streamed answer together; ``body`` is the answer's JSON so far.

    ``problems`` has, by the id of a tool call, why the arguments of the call cannot be used.
    """

    @property
    def body(self) -> dict[str, Any]:
        """The answer's JSON, as far as it came."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the answer came to its end."""
        ...

    @property
    def problems(self) -> Mapping[str, str]:
        """Problems with the arguments of calls."""
        ...

    def take(self, event: dict[str, Any]) -> Iterable[Chunk]:
        """Add an event, and return the chunks to show."""
        ...


_MOST_TOKENS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class SdkProvider:
    """Asks a model through one endpoint of an SDK's client. Raises InvalidSetting.

    ``info`` is what ``get_info`` returns; ``options`` and ``propagate`` are those of
    ``Connection``, with ``tools`` among the options.
    """

    ENDPOINT = ""
    """The path of attributes from the client to the endpoint."""

    NO_CALL: ClassVar[Any] = "none"
    """The API's ``tool_choice`` that lets the model see its tools and call none."""

    takes_tool_choice = True

    def __init__(
        self,
        name: str,
        model: str,
        info: dict[str, int],
        client: Client,
        options: dict[str, Any],
        propagate: bool,
    ) -> None:
        self.name = name
        self.model = model
        self._info = info
        self._client = client
        most = next((options[one] for one in _MOST_TOKENS if one in options), None)
        self.call_settings = read_settings(
            max_tokens=most, url=getattr(client.sdk, "base_url", None)
        )
        """What each request says next to its model, for the record of the call."""
        self._tools = list(options.pop("tools", None) or ())
        endpoint = attrgetter(self.ENDPOINT)(client.sdk)
        self._connection = Connection(name, endpoint, options, propagate)
        self._last_tools: list[dict[str, Any]] = []

    async def aclose(self) -> None:
        """Close the client that was made from the environment; yours stays open."""
        await self._client.aclose()

    def get_info(self) -> dict[str, int]:
        """``context_window`` and ``max_output_tokens`` for the budget, where they are known."""
        return self._info

    async def complete(self, request: Request) -> Answer:
        """The whole answer. Raises ProviderFailed."""
        body = await self._connection.ask(self._arguments(request), request.ids)
        return self._answer(body, {})

    async def stream(self, request: Request) -> AsyncGenerator[Chunk | Answer, None]:
        """Chunks as they come, and the whole answer as the last item. Raises ProviderFailed."""
        answer = self._collector()
        arguments = {**self._arguments(request), **self._stream_arguments()}
        async with aclosing(self._connection.listen(arguments, request.ids)) as events:
            async for event in events:
                try:
                    chunks = list(answer.take(event))
                except (KeyError, IndexError, TypeError, AttributeError) as error:
                    raise failures.unusable(
                        self.name, "an event of a streamed answer", event
                    ) from error
                for chunk in chunks:
                    yield chunk
        if not answer.whole:
            raise failures.cut(self.name)
        yield self._answer(answer.body, answer.problems)

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """The tools in the form in which they are sent, so that they can be counted."""
        return [self._definition(one) for one in tools]

    def _arguments(self, request: Request) -> dict[str, Any]:
        """The arguments of a request, with further ``options``."""
        arguments: dict[str, Any] = {
            "model": self.model,
            **self._conversation(sendable(request.messages)),
        }
        if tools := self.definitions(request.tools) + self._tools:
            arguments["tools"] = tools
        self._last_tools = tools
        if request.tools and request.tool_choice == "none":
            arguments["tool_choice"] = self.NO_CALL
        return arguments

    async def compact(self, request: SummaryRequest) -> ModelAnswer:
        """The API's own summary of ``request.native``, for the policy ``native``.

        Sent with the tools of the last request, as the API asks for. Raises CompactionError where
        the model writes none, and ProviderFailed.
        """
        if request.native is None:
            raise CompactionError(
                f"provider {self.name!r}: compact is a summarizer for the policy native; for "
                "another policy give a function that returns a text"
            )
        body = await self._summary_of(request.native, request.hint and request.instruction)
        return summary_answer(body, self.name, self.model)

    async def _summary_of(
        self, rows: Sequence[dict[str, Any]], instructions: str | None
    ) -> dict[str, Any]:
        """The body in which the API answers a request for a compaction."""
        raise CompactionError(f"provider {self.name!r}: its API writes no summary of its own")

    def _stream_arguments(self) -> dict[str, Any]:
        """Further arguments of a streamed request."""
        return {}

    def _conversation(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Messages that the API takes, whatever context made them, as its arguments."""
        raise NotImplementedError

    def _definition(self, tool: ToolDefinition) -> dict[str, Any]:
        """A tool in the form of the API."""
        raise NotImplementedError

    def _collector(self) -> AnswerCollector:
        """A collector for one streamed answer."""
        raise NotImplementedError

    def _answer(self, body: dict[str, Any], problems: Mapping[str, str]) -> Answer:
        """The answer in the API's JSON. Raises ProviderFailed."""
        raise NotImplementedError


def without_host_keys(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the keys of hosts and contexts: the APIs refuse keys that they do not know.

    Amplifier's modules write ``metadata``, ``timestamp``, and marks such as ``_stubbed``.
    """
    return {
        key: value
        for key, value in row.items()
        if key not in ("metadata", "timestamp") and not key.startswith("_")
    }
