"""The capability of a Pydantic AI agent: a conversation is a session, a run is a turn.

The run's messages are the host's storage, and the transcript mirrors them: what a history processor
removes from them, or a caller leaves out of ``message_history``, is an event. Each attempt at a
model request is sent the session's view instead; the run's own messages are not changed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
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

from eventctx.adapters.kit.given_engine import GivenEngine, OpenSessions
from eventctx.adapters.kit.host_run import HostRun, RunStep, ToolEnd
from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.kit.nested import ToolAround, begin_turn, nested_session_id, tool_around
from eventctx.adapters.pydantic_ai.rows import (
    MessageRows,
    identity,
    messages_of,
    rows_of,
    tool_definitions,
)
from eventctx.engine import Engine
from eventctx.log.turn_recorder import read_settings
from eventctx.log.usage import PYDANTIC_AI, read_usage
from eventctx.search.tool import DESCRIPTION, TOOL_NAME, parameters
from eventctx.session.context import Context


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
        self._open: OpenSessions[ConversationSession] = OpenSessions()

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

        rows = await self._run(conversation).do(ConversationSession.messages)
        return messages_of(rows)

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
            run = self._run(self._runs.session_of(context))
            return await run.do(lambda found: found.context.recall_tool()(arguments))

        tool = Tool.from_schema(recall, TOOL_NAME, DESCRIPTION, parameters(), takes_ctx=True)
        return FunctionToolset([tool])

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Record the run as a turn."""
        agent, around = None if ctx.agent is None else ctx.agent.name, tool_around()

        async def begin(found: ConversationSession) -> None:
            await begin_turn(self._given.engine, found, agent, around)

        with self._runs.under_way(ctx) as name:
            async with self._run(name).turn(begin, ConversationSession.over) as turn:
                result = await handler()
                turn.ends_with(result.all_messages())
        return result

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the view instead of the run's messages."""
        return replace(request_context, messages=await self._call(ctx, request_context).begin())

    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """Record the answer before its tools run, whose crash would take it along."""
        await self._call(ctx, request_context).end(response)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Record that the model call failed."""
        await self._call(ctx, request_context).fail(error)
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
        inside = ToolAround(name, call.tool_call_id, self._runs.own_name(ctx))
        async with self._run(name).tool(
            call.tool_name, call.tool_call_id, inside, waits=(CallDeferred, ApprovalRequired)
        ) as tool:
            result = await handler(args)
            tool.ends_with(ToolEnd(result if isinstance(result, str) else None))
        return result

    # -- reports ---------------------------------------------------------------------------------

    def _run(self, name: str) -> HostRun[ConversationSession]:
        async def opened() -> ConversationSession:
            return ConversationSession(await self._given.engine.session(name, **self._settings))

        return HostRun(self._given, lambda: self._open.of(name, opened))

    def _call(
        self, ctx: RunContext[Any], request: ModelRequestContext
    ) -> RunStep[list[ModelMessage], ModelResponse]:
        held = list(ctx.messages)
        run = self._run(self._runs.session_of(ctx))
        return run.call(
            lambda found: found.decide(held, request), ConversationSession.record_answer
        )


class ConversationSession(HostSession):
    """A conversation's session, and the rows of the messages that its run holds."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, identity)
        self._rows = MessageRows()

    async def over(self, messages: list[ModelMessage]) -> None:
        """Record that the run is over, with these messages."""
        await self.mirror(self._rows.of(messages))
        await self.turns.turn_ended()

    async def decide(
        self, held: list[ModelMessage], request: ModelRequestContext
    ) -> list[ModelMessage]:
        """Record a call's request, and return the messages to send; the run holds ``held``."""
        await self.mirror(self._rows.of(held), with_request=True)
        most = {**(request.model.settings or {}), **(request.model_settings or {})}
        settings = read_settings(
            stream=request.streaming, max_tokens=most.get("max_tokens"), url=request.model.base_url
        )
        await self.turns.iteration_began(request.model.system, request.model.model_name, settings)
        rows = await self.prepare(
            instructions=_instructions(request),
            tools=tool_definitions(request.model_request_parameters),
            model=request.model.model_name,
        )
        if _same(request.messages, held):
            return self._rows.messages_of(rows)
        await self.sent(rows, [row for one in rows_of(request.messages) for row in one])
        return request.messages

    async def record_answer(self, response: ModelResponse) -> None:
        """Record what a call answered."""
        await self.turns.model_known(
            model=response.model_name,
            usage=read_usage(response.usage, PYDANTIC_AI) if response.usage.has_values() else None,
            response_id=response.provider_response_id,
            finish_reason=response.finish_reason,
        )
        await self.turns.model_answered()
        await self.mirror(self._rows.then(response))


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


class RunSessions:
    """The sessions of the runs under way; ``session`` is the one of all runs, if one was named.

    A run inside a tool has a session of its own where another run has that of its name: the run
    around it, or one that runs at the same time.
    """

    def __init__(self, session: str | None) -> None:
        self._session = session
        self._sessions: dict[str, str] = {}

    def own_name(self, run: RunContext[Any]) -> str:
        """The session that a run asks for."""
        return str(self._session or run.conversation_id or run.run_id)

    def session_of(self, run: RunContext[Any]) -> str:
        """The session that a run has."""
        return self._sessions.get(str(run.run_id), self.own_name(run))

    @contextmanager
    def under_way(self, run: RunContext[Any]) -> Iterator[str]:
        """A block in which a run is under way, in the session that it gets."""
        key = str(run.run_id)
        session = self._sessions[key] = self._free(self.own_name(run))
        try:
            yield session
        finally:
            del self._sessions[key]

    def _free(self, name: str) -> str:
        around, taken = tool_around(), set(self._sessions.values())
        if around is None or (name != around.name and name not in taken):
            return name
        parent = around.session if name == around.name else name
        names = (nested_session_id(parent, around.call_id, n) for n in itertools.count(1))
        return next(one for one in names if one not in taken)
