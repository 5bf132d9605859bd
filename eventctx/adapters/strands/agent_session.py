"""The session of one agent: what its seams record in it, in the engine's loop."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from eventctx.adapters.kit.host_run import ToolEnd, turn_failed
from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.strands.rows import (
    AgentRows,
    Message,
    identity,
    instructions_of,
    messages_of,
    row_of,
    sendable,
    tool_definitions,
)
from eventctx.log.turn_recorder import CallSettings, read_settings
from eventctx.log.usage import Usage, form_of_strands, read_usage
from eventctx.session.context import Context

if TYPE_CHECKING:
    from strands import Agent
    from strands.agent import AgentResult
    from strands.middleware import InvokeModelContext, ModelStopReason, ToolResultEvent

_NO_LIMIT: Final = 10**12
"""The budget of a conversation that a server keeps, in tokens."""

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]+")


def name_in_session(session: str, agent: str) -> str:
    """The name of a further agent's session."""
    return f"{session}.{_UNNAMED.sub('_', agent)}"


class AgentSession(HostSession):
    """The session of one agent. ``stateful``: its model's server keeps the conversation."""

    def __init__(self, context: Context, stateful: bool) -> None:
        super().__init__(context, identity)
        self._rows = AgentRows()
        self._stateful = stateful
        self._prompted = True
        """Whether the person's words of the invocation were added; others are the program's."""

    # -- an invocation ---------------------------------------------------------------------------

    async def begin(self, agent: str) -> None:
        """Begin the turn of an invocation."""
        self._prompted = False
        await self.turns.turn_began(agent=agent)

    async def add_message(self, agent: Agent, message: Message) -> None:
        """Take a message that the agent added: an answer is in the log before its tools run."""
        is_user = message["role"] == "user" and not _has_results(message)
        by_program = is_user and self._prompted  # such as the prompt for an output of a given form
        if by_program:
            self._rows.by_program(message)
        if self._stateful:
            await self.add([row_of(message, by_program=by_program)])
        elif message["role"] == "assistant":
            await self._mirror_agent(agent)

    async def over(
        self, agent: Agent, result: AgentResult | None, error: BaseException | None
    ) -> None:
        """End the turn of an invocation, with a result or for an error."""
        if not self._stateful:
            await self._mirror_agent(agent)
        if result is not None or error is None:
            cancelled = result is not None and result.stop_reason == "cancelled"
            await self.turns.turn_ended("cancelled" if cancelled else "ok")
        else:
            await turn_failed(self.turns, error)

    async def _mirror_agent(self, agent: Agent, *, with_request: bool = False) -> list[Any]:
        rows = self._rows.of(agent.messages)
        await self.mirror(rows, with_request=with_request)
        return rows

    # -- a model call ----------------------------------------------------------------------------

    async def decide(self, context: InvokeModelContext) -> list[Message]:
        """Record a call's request, and return the messages to send.

        They are the view, or the host's own where it changed its list.
        """
        self._prompted = True
        held = context.agent.messages
        rows = [] if self._stateful else await self._mirror_agent(context.agent, with_request=True)
        model = _model_name(context.model)
        await self.turns.iteration_began(*_asked(context.model, model))
        view = await self.prepare(
            instructions=instructions_of(context.system_prompt),
            tools=tool_definitions(context.tool_specs),
            model=model,
            budget=_NO_LIMIT if self._stateful else None,
        )
        if not self._stateful and context.messages == held:
            return sendable(messages_of(view, context.messages, rows))
        added = None if self._stateful else _appended_blocks(context, held)
        if added is None:
            await self.sent(view, [row_of(one) for one in context.messages])
            return list(context.messages)
        sent = [*context.messages[:-1], deepcopy(held[-1])]
        *before, last = messages_of(view, sent, rows)
        last = {**last, "content": [*last["content"], *added]}
        await self.sent(view, [*view[:-1], row_of(last)])
        return sendable([*before, last])

    async def record_answer(self, event: ModelStopReason) -> None:
        """Record that the model answered; its message comes with ``add_message``."""
        await self.turns.model_known(
            usage=usage_of(event.usage), finish_reason=str(event.stop_reason)
        )
        await self.turns.model_answered()


def tool_end(event: ToolResultEvent) -> ToolEnd:
    """The end of a tool call, as its result says it."""
    failure = None
    if event.tool_result.get("status") == "error":
        failure = "ToolError" if event.exception is None else type(event.exception).__name__
    return ToolEnd(_text_of(event.tool_result), failure)


def _appended_blocks(context: InvokeModelContext, held: list[Message]) -> list[Any] | None:
    """The blocks that a memory or an injector appended to the last message for this call.

    None where the request differs from the agent's messages in any other way.
    """
    sent, number = context.messages, context.dynamic_trailing_blocks
    if not number or not held or len(sent) != len(held) or sent[:-1] != held[:-1]:
        return None
    content = sent[-1]["content"]
    if sent[-1]["role"] != held[-1]["role"] or content[:-number] != held[-1]["content"]:
        return None
    return list(content[-number:])


def _has_results(message: Message) -> bool:
    return any("toolResult" in one for one in message["content"])


def _text_of(result: Any) -> str | None:
    """The text of a result that is nothing else."""
    content = result.get("content") or []
    return content[0]["text"] if len(content) == 1 and list(content[0]) == ["text"] else None


def _model_name(model: Any) -> str | None:
    name = _config_of(model).get("model_id")
    return name if isinstance(name, str) and name else None


def _config_of(model: Any) -> dict[str, Any]:
    configured = getattr(model, "get_config", None)  # which a class of one's own may lack
    config = configured() if callable(configured) else None
    return config if isinstance(config, dict) else {}


_MODELS: Final = "strands.models."
_MOST_TOKENS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def _asked(model: Any, name: str | None) -> tuple[str | None, str | None, CallSettings]:
    """The provider, the model's ``name`` and the settings of a call.

    Strands has a module for each provider. Its models ask for streams, unless they are set not to.
    """
    modules = [one.__module__ for one in type(model).__mro__]
    own = [one.removeprefix(_MODELS) for one in modules if one.startswith(_MODELS)]
    provider = next((one for one in own if one != "model"), None)
    if provider == "litellm" and name:
        provider = name.partition("/")[0]
    config = _config_of(model)
    endpoint = getattr(getattr(getattr(model, "client", None), "meta", None), "endpoint_url", None)
    given = {**(config.get("params") or {}), **config}
    settings = read_settings(
        stream=provider is not None and False not in (given.get("stream"), given.get("streaming")),
        max_tokens=next((given[one] for one in _MOST_TOKENS if one in given), None),
        url=(getattr(model, "client_args", None) or {}).get("base_url") or endpoint,
    )
    return provider and provider.removesuffix("_responses"), name, settings


def usage_of(found: Any) -> Usage | None:
    """The counts of an answer; None where nothing is counted."""
    counted = read_usage(found, form_of_strands(found))
    return None if counted == Usage() else counted
