"""The protocols between orchestrators, providers, tools and contexts.

An orchestrator runs turns: it adds the prompt to a context, asks a provider, runs the tools that
the model calls, and tells hooks of each step. Contexts and tools of any library with these methods
will do. A provider is one of ``anthropic``, ``openai_chat`` and ``openai_responses`` in this
folder, an Amplifier provider module, or a class of yours with the methods of ``Provider``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from eventctx.log.events import InputTransformation
from eventctx.log.usage import Usage as Usage

Finish = Literal["answered", "iteration_limit", "denied", "stopped"]
"""The end of a turn: with an answer, at the limit, by a hook's denial, or on the host's request."""


class Ids(msgspec.Struct, frozen=True):
    """The place of a call in a session; ids as in the log, and the id of the trace."""

    session_id: str
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None
    trace_id: str | None = None

    def as_fields(self) -> dict[str, str | int | None]:
        """The five ids that every event's payload has."""
        return {
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "span_id": self.span_id,
            "parent_span_id": self.parent_span_id,
            "iteration": self.iteration,
        }

    def traceparent(self) -> str | None:
        """The W3C header that makes a server's spans children of this one; None without a span."""
        if self.trace_id is None or self.span_id is None:
            return None
        return f"00-{self.trace_id}-{self.span_id}-01"


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool in the form for a provider; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ToolRequest(msgspec.Struct, frozen=True):
    """A model's call of a tool. ``error`` is the reason why its arguments cannot be used."""

    id: str
    name: str
    arguments: dict[str, Any]
    error: str | None = None


class ToolOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call; ``content`` is its text for the model."""

    call: ToolRequest
    content: str
    is_error: bool = False


class Request(msgspec.Struct, frozen=True):
    """A request to a provider: the prepared messages, and the tools that the model knows.

    With ``tool_choice`` "none" the model must not call them. They are sent all the same, because
    the definitions are the beginning of what a provider caches. Only a provider with
    ``takes_tool_choice = True`` gets such a request; another one gets no tools instead.
    """

    messages: Sequence[dict[str, Any]]
    ids: Ids
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: Literal["none"] | None = None


class Answer(msgspec.Struct, frozen=True):
    """A model's answer. ``message`` goes into the context as it is, and back to the provider.

    So it is in the provider's own dialect, with thinking blocks and their signatures untouched. An
    answer of several items (OpenAI's Responses API) has the first item in ``message`` and the
    others, in order, in ``more``; all of them must be added. ``text`` is the text for a person,
    ``transformed`` what the API says that it changed in the request.
    """

    message: dict[str, Any]
    text: str = ""
    calls: tuple[ToolRequest, ...] = ()
    finish_reason: str | None = None
    response_id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    more: tuple[dict[str, Any], ...] = ()
    transformed: tuple[InputTransformation, ...] = ()

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """All of the answer, in order."""
        return (self.message, *self.more)


class Chunk(msgspec.Struct, frozen=True):
    """A piece of an answer as it comes.

    ``block`` counts from 0 the blocks of the answer, and in ``StreamingOrchestrator.stream`` those
    of the whole turn.
    """

    kind: Literal["text", "thinking"]
    text: str
    block: int = 0


@runtime_checkable
class Provider(Protocol):
    """A model of an API.

    ``complete`` and ``stream`` raise ``ProviderFailed`` for failures of the API and the network.
    They never retry by themselves, because each attempt is a call of its own in the log.
    ``get_info()``, if there is one, gives ``context_window`` and ``max_output_tokens`` for the
    budget (see ``eventctx.session.settings``). An attribute ``takes_tool_choice = True`` says that
    it sends a request's ``tool_choice``.
    """

    @property
    def name(self) -> str:
        """The provider's name, such as ``anthropic``."""
        ...

    @property
    def model(self) -> str | None:
        """The name of the model that will be called; None if the provider chooses."""
        ...

    async def complete(self, request: Request) -> Answer:
        """The whole answer. Raises ProviderFailed."""
        ...

    def definitions(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """The tools in the form in which they are sent, so that they can be counted."""
        ...

    def result_message(self, outcome: ToolOutcome) -> dict[str, Any]:
        """A call's outcome as a message of the provider's dialect."""
        ...


@runtime_checkable
class StreamingProvider(Provider, Protocol):
    """A provider that can answer in pieces."""

    def stream(self, request: Request) -> AsyncIterator[Chunk | Answer]:
        """Chunks as they come, and the whole answer as the last item. Raises ProviderFailed.

        A caller that stops before the end closes it (``contextlib.aclosing``), which ends the
        request.
        """
        ...


@runtime_checkable
class Tool(Protocol):
    """A tool: an Amplifier tool module as it is, or a function made one by ``tool``.

    ``input_schema`` (a property) may give the JSON schema of its input. A tool that needs the ids
    of its call also has ``async execute_with(input, ids)`` (see ``tools.run_tool``).
    """

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        ...

    @property
    def description(self) -> str:
        """The description of its purpose, for the model."""
        ...

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the specification's name
        """Run it; the result may be any value, or an Amplifier ``ToolResult``."""
        ...


class ContextManager(Protocol):
    """The five methods of the context contract."""

    async def add_message(self, message: dict[str, Any]) -> Any:
        """Add a message."""
        ...

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """The messages to send now."""
        ...

    async def get_messages(self) -> list[dict[str, Any]]:
        """The whole transcript."""
        ...

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Replace the transcript."""
        ...

    async def clear(self) -> None:
        """Empty it."""
        ...


class Response(msgspec.Struct, frozen=True):
    """The outcome of a turn. ``str(response)`` is its text.

    ``iterations`` counts provider/tool cycles, ``usage`` adds up the reported usage.
    """

    text: str
    turn_id: str
    finish: Finish = "answered"
    iterations: int = 1
    usage: Usage = Usage()

    def __str__(self) -> str:
        return self.text


class OrchestratorModule(Protocol):
    """Runs turns (orchestrator specification, "Orchestrator Protocol")."""

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: Mapping[str, Any],
        tools: Mapping[str, Any] | None = None,
        hooks: Any = None,
    ) -> Response:
        """Run a turn to its end. Raises ProviderFailed and what the context raises."""
        ...
