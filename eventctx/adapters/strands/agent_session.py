"""The session of one agent: what its seams record in it, in the engine's loop."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from eventctx.adapters.kit.failures import call_failed, tool_failed, turn_failed
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
from eventctx.log.usage import Usage, form_of_strands, read_usage
from eventctx.session.context import Context

if TYPE_CHECKING:
    from strands import Agent
    from strands.agent import AgentResult
    from strands.middleware import InvokeModelContext, ModelStopReason, ToolResultEvent
    from strands.types.tools import ToolUse

_NO_LIMIT: Final = 10**12
"""The budget of a conversation that a server keeps, in tokens."""

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]+")


def name_in_session(session: str, agent: str) -> str:
    """The name of a further agent's session."""
    return f"{session}.{_UNNAMED.sub('_', agent)}"


class AgentSession:
    """The session of one agent. ``stateful``: its model's server keeps the conversation."""

    def __init__(self, context: Context, stateful: bool) -> None:
        self._host = HostSession(context, identity)
        self._turns = self._host.turns
        self._rows = AgentRows()
        self._stateful = stateful
        self._prompted = True
        """Whether the person's words of the invocation were told; others are the program's."""

    def close(self) -> None:
        """Stop observing the session, which stays open."""
        self._host.close()

    # -- an invocation ---------------------------------------------------------------------------

    async def began(self, agent: str) -> None:
        """An invocation began: a turn."""
        self._prompted = False
        await self._turns.turn_began(agent=agent)

    async def added(self, agent: Agent, message: Message) -> None:
        """A message was added to the agent's: an answer is in the log before its tools run."""
        is_user = message["role"] == "user" and not _has_results(message)
        by_program = is_user and self._prompted  # such as the prompt for an output of a given form
        if by_program:
            self._rows.by_program(message)
        if self._stateful:
            await self._host.add([row_of(message, by_program=by_program)])
        elif message["role"] == "assistant":
            await self._mirror(agent)

    async def over(
        self, agent: Agent, result: AgentResult | None, error: BaseException | None
    ) -> None:
        """The invocation ended, with a result or for an error."""
        if not self._stateful:
            await self._mirror(agent)
        if result is not None or error is None:
            cancelled = result is not None and result.stop_reason == "cancelled"
            await self._turns.turn_ended("cancelled" if cancelled else "ok")
        else:
            await turn_failed(self._turns, error)

    async def _mirror(self, agent: Agent, *, with_request: bool = False) -> list[Any]:
        rows = self._rows.of(agent.messages)
        await self._host.mirror(rows, with_request=with_request)
        return rows

    # -- a model call ----------------------------------------------------------------------------

    async def decided(self, context: InvokeModelContext) -> list[Message]:
        """The messages to send: the view, or the host's own where it changed its list."""
        self._prompted = True
        held = context.agent.messages
        rows = [] if self._stateful else await self._mirror(context.agent, with_request=True)
        model = _model_name(context.model)
        await self._turns.iteration_began(None, model)
        view = await self._host.prepare(
            instructions=instructions_of(context.system_prompt),
            tools=tool_definitions(context.tool_specs),
            model=model,
            budget=_NO_LIMIT if self._stateful else None,
        )
        if not self._stateful and context.messages == held:
            return sendable(messages_of(view, context.messages, rows))
        added = None if self._stateful else _blocks_put_behind(context, held)
        if added is None:
            await self._host.sent(view, [row_of(one) for one in context.messages])
            return list(context.messages)
        sent = [*context.messages[:-1], deepcopy(held[-1])]
        *before, last = messages_of(view, sent, rows)
        last = {**last, "content": [*last["content"], *added]}
        await self._host.sent(view, [*view[:-1], row_of(last)])
        return sendable([*before, last])

    async def answered(self, event: ModelStopReason) -> None:
        """The model answered."""
        await self._turns.model_known(
            usage=usage_of(event.usage), finish_reason=str(event.stop_reason)
        )
        await self._turns.model_answered()

    async def model_failed(self, error: BaseException) -> None:
        """The model call failed, or was given up."""
        await call_failed(self._turns, error)

    # -- a tool call -----------------------------------------------------------------------------

    async def tool_began(self, call: ToolUse) -> None:
        """A tool call began."""
        await self._turns.tool_began(call["name"], call["toolUseId"], call["toolUseId"])

    async def tool_ended(self, call: ToolUse, event: ToolResultEvent) -> None:
        """A tool call ended with a result."""
        name, key = call["name"], call["toolUseId"]
        answer = _text_of(event.tool_result)
        if event.tool_result.get("status") == "error":
            kind = "ToolError" if event.exception is None else type(event.exception).__name__
            await self._turns.tool_failed(key, kind, answer or "", name=name)
        else:
            await self._turns.tool_ended(key, answer, name=name)

    async def tool_failed(self, call: ToolUse, error: BaseException) -> None:
        """A tool call failed, was given up, or waits for a person."""
        waits = type(error).__name__ == "InterruptException"
        await tool_failed(self._turns, call["toolUseId"], error, name=call["name"], cancelled=waits)


def _blocks_put_behind(context: InvokeModelContext, held: list[Message]) -> list[Any] | None:
    """What a memory or an injector put behind the last message for this call, and changed no more.

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
    configured = getattr(model, "get_config", None)  # which a class of one's own may lack
    config = configured() if callable(configured) else None
    name = config.get("model_id") if isinstance(config, dict) else None
    return name if isinstance(name, str) and name else None


def usage_of(found: Any) -> Usage | None:
    """The counts of an answer; None where nothing is counted."""
    counted = read_usage(found, form_of_strands(found))
    return None if counted == Usage() else counted
