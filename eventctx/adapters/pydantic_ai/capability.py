"""The capability of a Pydantic AI agent: a conversation is a session, a run is a turn.

The run's messages are the host's storage, and the transcript mirrors them: what a history processor
removes from them, or a caller leaves out of ``message_history``, is an event. Each attempt at a
model request is sent the session's view instead; the run's own messages are not changed.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, WrapRunHandler, WrapToolExecuteHandler
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import RunContext, Tool, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from eventctx.adapters.kit.failures import call_failed, tool_failed, turn_failed
from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.kit.nested import ToolAround, begin_turn, inside_tool, tool_around
from eventctx.adapters.kit.open_sessions import OpenSessions
from eventctx.adapters.pydantic_ai.rows import (
    MessageRows,
    identity,
    messages_of,
    rows_of,
    tool_definitions,
)
from eventctx.adapters.pydantic_ai.runs import RunSessions
from eventctx.engine import Engine
from eventctx.log.usage import PYDANTIC_AI, read_usage
from eventctx.search.tool import DESCRIPTION, TOOL_NAME, parameters
from eventctx.session.context import Context


class _Conversation:
    """A conversation's session, and the rows of the messages that its run holds."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.host = HostSession(context, identity)
        self.turns = self.host.turns
        self.rows = MessageRows()

    def close(self) -> None:
        self.host.close()


class Eventctx(AbstractCapability[Any]):
    """Records each conversation of an agent as a session, and sends the session's view.

    ``engine``: an engine, for runs in its event loop or another one; or the path or URL of a store,
    which the capability opens in a thread of its own, for ``run_sync`` too. ``session`` names the
    one session of all runs, which is else the run's ``conversation_id``. ``recall`` gives the model
    a tool that searches the transcript. ``settings`` are those of ``engine.session``. Put it last
    among the capabilities. Runs of one conversation follow each other.

    Raises InvalidSetting for an engine outside of its loop, and what opening a store raises.
    """

    def __init__(
        self,
        engine: Engine | str | os.PathLike[str],
        session: str | None = None,
        *,
        recall: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._given = GivenEngine(engine, "pydantic-ai")
        self._runs = RunSessions(session)
        self._recall = recall
        self._settings = settings
        self._open: OpenSessions[_Conversation] = OpenSessions()

    def __deepcopy__(self, memo: object) -> Eventctx:
        """Itself: an agent that was copied records with the same adapter."""
        return self

    def close(self) -> None:
        """Close the store that the capability opened. An engine that was given stays open."""
        self._given.close()

    async def history(self, conversation: str) -> list[ModelMessage]:
        """A conversation's messages, never compacted, for ``message_history=``.

        Without the instructions, which the next run gives again, and the program's metadata.
        """

        async def transcript() -> list[ModelMessage]:
            return messages_of(await (await self._conversation(conversation)).host.messages())

        return await self._given.run(transcript())

    # -- Pydantic AI's hooks ---------------------------------------------------------------------

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: an engine cannot be written into a specification of an agent."""
        return None

    def get_toolset(self) -> AbstractToolset[Any] | None:
        """The recall tool, if it is wanted."""
        if not self._recall:
            return None

        async def recall(context: RunContext[Any], **arguments: Any) -> str:
            return await self._given.run(self._recalled(self._runs.session_of(context), arguments))

        tool = Tool.from_schema(recall, TOOL_NAME, DESCRIPTION, parameters(), takes_ctx=True)
        return FunctionToolset([tool])

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Record the run as a turn."""
        agent = None if ctx.agent is None else ctx.agent.name
        with self._runs.under_way(ctx) as name:
            await self._given.run(self._began(name, agent, tool_around()))
            try:
                result = await handler()
            except BaseException as error:
                await self._given.run(self._failed(name, error))
                raise
            await self._given.run(self._over(name, result.all_messages()))
        return result

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the view instead of the run's messages."""
        messages = await self._given.run(
            self._decided(self._runs.session_of(ctx), list(ctx.messages), request_context)
        )
        return replace(request_context, messages=messages)

    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """Record the answer before its tools run, whose crash would take it along."""
        await self._given.run(self._answered(self._runs.session_of(ctx), response))
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Record that the model call failed."""
        await self._given.run(self._model_failed(self._runs.session_of(ctx), error))
        raise error

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Record a tool call."""
        name = self._runs.session_of(ctx)
        await self._given.run(self._tool_began(name, call))
        try:
            with inside_tool(ToolAround(name, call.tool_call_id, self._runs.own_name(ctx))):
                result = await handler(args)
        except BaseException as error:
            await self._given.run(self._tool_failed(name, call, error))
            raise
        await self._given.run(self._tool_ended(name, call, result))
        return result

    # -- in the engine's loop --------------------------------------------------------------------

    async def _conversation(self, name: str) -> _Conversation:
        async def opened() -> _Conversation:
            return _Conversation(await self._given.engine.session(name, **self._settings))

        return await self._open.of(name, opened)

    async def _recalled(self, name: str, arguments: dict[str, Any]) -> str:
        context = (await self._conversation(name)).context
        return await context.recall_tool()(arguments)

    async def _began(self, name: str, agent: str | None, around: ToolAround | None) -> None:
        host = (await self._conversation(name)).host
        await begin_turn(self._given.engine, host, agent, around)

    async def _over(self, name: str, messages: list[ModelMessage]) -> None:
        found = await self._conversation(name)
        await found.host.mirror(found.rows.of(messages))
        await found.turns.turn_ended()

    async def _failed(self, name: str, error: BaseException) -> None:
        await turn_failed((await self._conversation(name)).turns, error)

    async def _decided(
        self, name: str, held: list[ModelMessage], request: ModelRequestContext
    ) -> list[ModelMessage]:
        found = await self._conversation(name)
        await found.host.mirror(found.rows.of(held), with_request=True)
        await found.turns.iteration_began(request.model.system, request.model.model_name)
        rows = await found.host.prepare(
            instructions=_instructions(request),
            tools=tool_definitions(request.model_request_parameters),
            model=request.model.model_name,
        )
        if _same(request.messages, held):
            return found.rows.messages_of(rows)
        await found.host.sent(rows, [row for one in rows_of(request.messages) for row in one])
        return request.messages

    async def _answered(self, name: str, response: ModelResponse) -> None:
        found = await self._conversation(name)
        await found.turns.model_known(
            model=response.model_name,
            usage=read_usage(response.usage, PYDANTIC_AI) if response.usage.has_values() else None,
            response_id=response.provider_response_id,
            finish_reason=response.finish_reason,
        )
        await found.turns.model_answered()
        await found.host.mirror(found.rows.then(response))

    async def _model_failed(self, name: str, error: BaseException) -> None:
        await call_failed((await self._conversation(name)).turns, error)

    async def _tool_began(self, name: str, call: ToolCallPart) -> None:
        turns = (await self._conversation(name)).turns
        await turns.tool_began(call.tool_name, call.tool_call_id, call.tool_call_id)

    async def _tool_ended(self, name: str, call: ToolCallPart, result: Any) -> None:
        turns = (await self._conversation(name)).turns
        answer = result if isinstance(result, str) else None
        await turns.tool_ended(call.tool_call_id, answer, name=call.tool_name)

    async def _tool_failed(self, name: str, call: ToolCallPart, error: BaseException) -> None:
        deferred = isinstance(error, CallDeferred | ApprovalRequired)
        turns, key = (await self._conversation(name)).turns, call.tool_call_id
        await tool_failed(turns, key, error, name=call.tool_name, cancelled=deferred)


def _same(messages: list[ModelMessage], held: list[ModelMessage]) -> bool:
    """Whether a request holds the run's messages; the one under way may be a copy."""
    return len(messages) == len(held) and all(
        one is other or one.parts == other.parts for one, other in zip(messages, held, strict=True)
    )


def _instructions(request: ModelRequestContext) -> str | None:
    """The instructions that are sent, which without parts are those that the messages hold."""
    parts = request.model_request_parameters.instruction_parts
    if parts is not None:
        return InstructionPart.join(parts)
    requests = [one for one in request.messages if isinstance(one, ModelRequest)]
    return next((one.instructions for one in reversed(requests) if one.instructions), None)
