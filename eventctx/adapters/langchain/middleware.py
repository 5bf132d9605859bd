"""The middleware of a LangChain agent: a thread is a session, its state's messages the transcript.

The checkpointer is left alone. Each model call is held against the graph's state: what is new is
added, and what was removed or edited there (``RemoveMessage``, time travel) is an event. Then the
session's view is sent instead; the state is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from eventctx.adapters.kit.failures import call_failed, tool_failed
from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.kit.nested import ToolAround, begin_turn, inside_tool, tool_around
from eventctx.adapters.kit.open_sessions import OpenSessions
from eventctx.adapters.langchain.places import agent_name, session_of, tool_of
from eventctx.adapters.langchain.rows import KnownRows, identity, row_of, tool_definitions
from eventctx.engine import Engine
from eventctx.log.usage import LANGCHAIN, read_usage
from eventctx.session.context import Context
from eventctx.sync.proxy import SyncEngine


class _Thread:
    """A thread's session, and the rows of the messages that its graph holds."""

    def __init__(self, context: Context) -> None:
        self.host = HostSession(context, identity)
        self.turns = self.host.turns
        self.rows = KnownRows()

    def close(self) -> None:
        self.host.close()


if TYPE_CHECKING:
    Middleware = AgentMiddleware[Any, Any, Any]
else:
    Middleware = AgentMiddleware  # which has two parameters in LangChain 1.2, and three later


class EventctxMiddleware(Middleware):
    """Records each thread of an agent as a session, and sends the session's view.

    ``engine``: an engine, for ``ainvoke`` and ``astream`` in its event loop or another one, and for
    ``invoke`` in another thread; or an engine of ``eventctx.sync``, for any of them; or the path or
    URL of a store, which the middleware opens so, and ``close`` closes. ``session`` names the
    session of a graph without a ``thread_id``. ``settings`` are those of ``engine.session``. Put it
    last, so that a retry of another middleware is a model call of its own.

    Raises InvalidSetting for a run without a ``thread_id`` if there is no ``session``.
    """

    def __init__(
        self,
        engine: Engine | SyncEngine | str | os.PathLike[str],
        *,
        session: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._session = session
        self._settings = settings
        self._open: OpenSessions[_Thread] = OpenSessions()
        self._given = GivenEngine(engine, "langchain")

    def __deepcopy__(self, memo: object) -> EventctxMiddleware:
        """Itself: an agent that was copied records with the same adapter."""
        return self

    def close(self) -> None:
        """Close the store that the middleware opened. An engine that was given stays open."""
        self._given.close()

    # -- LangChain's hooks -----------------------------------------------------------------------

    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        """A turn begins."""
        begun = self._begun(self._name(), agent_name(), tool_around(), state["messages"])
        await self._given.run(begun)

    def before_agent(self, state: Any, runtime: Any) -> None:
        """As ``abefore_agent``."""
        begun = self._begun(self._name(), agent_name(), tool_around(), state["messages"])
        self._given.wait(begun)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """The turn is over."""
        await self._given.run(self._over(self._name(), state["messages"]))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """As ``aafter_agent``."""
        self._given.wait(self._over(self._name(), state["messages"]))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Send the view instead of the state's messages."""
        name = self._name()
        messages = await self._given.run(self._decided(name, request))
        try:
            response = await handler(request.override(messages=messages))
        except BaseException as error:
            await self._given.run(self._model_failed(name, error))
            raise
        await self._given.run(self._answered(name, response.result))
        return response

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """As ``awrap_model_call``."""
        name = self._name()
        messages = self._given.wait(self._decided(name, request))
        try:
            response = handler(request.override(messages=messages))
        except BaseException as error:
            self._given.wait(self._model_failed(name, error))
            raise
        self._given.wait(self._answered(name, response.result))
        return response

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Record a tool call."""
        name = self._name()
        await self._given.run(self._tool_began(name, request))
        try:
            with inside_tool(tool_of(name, request.tool_call["id"], self._session)):
                result = await handler(request)
        except BaseException as error:
            await self._given.run(self._tool_failed(name, request, error))
            raise
        await self._given.run(self._tool_ended(name, request, result))
        return result

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """As ``awrap_tool_call``."""
        name = self._name()
        self._given.wait(self._tool_began(name, request))
        try:
            with inside_tool(tool_of(name, request.tool_call["id"], self._session)):
                result = handler(request)
        except BaseException as error:
            self._given.wait(self._tool_failed(name, request, error))
            raise
        self._given.wait(self._tool_ended(name, request, result))
        return result

    # -- in the engine's loop --------------------------------------------------------------------

    def _name(self) -> str:
        return session_of(self._session)

    async def _thread(self, name: str) -> _Thread:
        async def opened() -> _Thread:
            return _Thread(await self._given.engine.session(name, **self._settings))

        return await self._open.of(name, opened)

    async def _begun(
        self, name: str, agent: str | None, around: ToolAround | None, messages: list[AnyMessage]
    ) -> None:
        thread = await self._thread(name)
        await begin_turn(self._given.engine, thread.host, agent, around)
        await thread.host.mirror(thread.rows.of(messages))

    async def _over(self, name: str, messages: list[AnyMessage]) -> None:
        thread = await self._thread(name)
        await thread.host.mirror(thread.rows.of(messages))
        await thread.turns.turn_ended()

    async def _decided(self, name: str, request: ModelRequest[Any]) -> list[AnyMessage]:
        thread = await self._thread(name)
        held = request.state["messages"]
        await thread.host.mirror(thread.rows.of(held), with_request=True)
        model = _model_of(request.model)
        await thread.turns.iteration_began(None, model)
        rows = await thread.host.prepare(
            # A text of LangChain's own, which is a subclass of str.
            instructions=None if request.system_prompt is None else str(request.system_prompt),
            tools=tool_definitions(request.tools),
            model=model,
        )
        if request.messages == held:  # the same objects, mostly: those are not looked into
            return thread.rows.messages_of(rows)
        await thread.host.sent(rows, [row_of(one) for one in request.messages])
        return request.messages

    async def _answered(self, name: str, messages: list[BaseMessage]) -> None:
        turns = (await self._thread(name)).turns
        for one in messages:
            if isinstance(one, AIMessage):
                metadata = one.response_metadata
                await turns.model_known(
                    model=metadata.get("model_name") or metadata.get("model"),
                    usage=read_usage(one.usage_metadata, LANGCHAIN),
                    finish_reason=metadata.get("finish_reason") or metadata.get("stop_reason"),
                )
        await turns.model_answered()

    async def _model_failed(self, name: str, error: BaseException) -> None:
        await call_failed((await self._thread(name)).turns, error)

    async def _tool_began(self, name: str, request: ToolCallRequest) -> None:
        call, thread = request.tool_call, await self._thread(name)
        held = _messages_with(request)
        if held:  # the answer is in the log before its tools run, whose crash might take it along
            await thread.host.mirror(thread.rows.of(held))
        await thread.turns.tool_began(call["name"], call["id"], call["id"])

    async def _tool_ended(self, name: str, request: ToolCallRequest, result: Any) -> None:
        call, turns = request.tool_call, (await self._thread(name)).turns
        content = getattr(result, "content", None)
        answer = content if isinstance(content, str) else None
        if getattr(result, "status", "success") == "error":
            await turns.tool_failed(call["id"], "ToolError", answer or "", name=call["name"])
        else:
            await turns.tool_ended(call["id"], answer, name=call["name"])

    async def _tool_failed(self, name: str, request: ToolCallRequest, error: BaseException) -> None:
        turns, call = (await self._thread(name)).turns, request.tool_call
        # A tool that asks a person is left so, and begun again with the answer.
        left = isinstance(error, GraphBubbleUp)
        await tool_failed(turns, call["id"], error, name=call["name"], cancelled=left)


def _messages_with(request: ToolCallRequest) -> list[AnyMessage]:
    """The state's messages if the last of them made this call; else none."""
    state: Any = request.state
    held = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    if not isinstance(held, list) or not held or not isinstance(held[-1], AIMessage):
        return []
    calls = [one["id"] for one in held[-1].tool_calls]
    return held if request.tool_call["id"] in calls else []


def _model_of(model: Any) -> str | None:
    for name in ("model_name", "model", "model_id"):
        value = getattr(model, name, None)
        if isinstance(value, str) and value:
            return value
    return None


