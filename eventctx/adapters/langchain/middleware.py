"""The middleware of a LangChain agent: a thread is a session, its state's messages the transcript.

The checkpointer is left alone. Each model call is held against the graph's state: what is new is
added, and what was removed or edited there (``RemoveMessage``, time travel) is an event. Then the
session's view is sent instead; the state is not changed.

A graph that a tool runs has the thread of the agent that called the tool, and a session of its own.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.tools import BaseTool
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from eventctx.adapters.kit.given_engine import GivenEngine, OpenSessions
from eventctx.adapters.kit.host_run import HostRun, RunStep, ToolEnd
from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.kit.nested import ToolAround, begin_turn, nested_session_id, tool_around
from eventctx.adapters.langgraph.rows import Row, changed, identity, message_of, row_of
from eventctx.adapters.langgraph.saver import EventctxSaver
from eventctx.adapters.langgraph.threads import session_of_thread
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.turn_recorder import CallSettings, read_settings
from eventctx.log.usage import LANGCHAIN, read_usage
from eventctx.session.context import Context
from eventctx.sync.proxy import SyncEngine

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
        self._saver: EventctxSaver | None = None
        self._open: OpenSessions[Thread] = OpenSessions()
        self._given = GivenEngine(engine, "langchain")

    def __deepcopy__(self, memo: object) -> EventctxMiddleware:
        """Itself: an agent that was copied records with the same adapter."""
        return self

    def saver(self, **options: Any) -> EventctxSaver:
        """A checkpoint saver over the same store and settings: ``checkpointer=ours.saver()``.

        ``options`` are those of ``EventctxSaver``. It is closed with the middleware.
        """
        saver = EventctxSaver(self._given, **options, **self._settings)
        saver.on_delete = self._open.forget
        self._saver = saver
        return saver

    def close(self) -> None:
        """Close the store that the middleware opened. An engine that was given stays open."""
        if self._saver is not None:
            self._saver.close()
        self._given.close()

    # -- LangChain's hooks -----------------------------------------------------------------------

    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        """A turn begins."""
        await self._turn(state).begin()

    def before_agent(self, state: Any, runtime: Any) -> None:
        """As ``abefore_agent``."""
        self._given.wait(self._turn(state).begin())

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """The turn is over."""
        await self._turn(state).end(state["messages"])

    def after_agent(self, state: Any, runtime: Any) -> None:
        """As ``aafter_agent``."""
        self._given.wait(self._turn(state).end(state["messages"]))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Send the view instead of the state's messages."""
        async with self._call(request) as call:
            response = await handler(request.override(messages=call.begun))
            call.ends_with(response.result)
        return response

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """As ``awrap_model_call``."""
        with self._call(request) as call:
            response = handler(request.override(messages=call.begun))
            call.ends_with(response.result)
        return response

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Record a tool call."""
        async with self._tool(request) as tool:
            result = await handler(request)
            tool.ends_with(_end_of(result))
        return result

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """As ``awrap_tool_call``."""
        with self._tool(request) as tool:
            result = handler(request)
            tool.ends_with(_end_of(result))
        return result

    # -- reports ---------------------------------------------------------------------------------

    def _run(self, name: str) -> HostRun[Thread]:
        async def opened() -> Thread:
            session, _ = await session_of_thread(self._given.engine.store, name)
            return Thread(await self._given.engine.session(session, **self._settings))

        return HostRun(self._given, lambda: self._open.of(name, opened))

    def _turn(self, state: Any) -> RunStep[None, list[AnyMessage]]:
        agent, around = agent_name(), tool_around()

        async def begin(thread: Thread) -> None:
            await begin_turn(self._given.engine, thread, agent, around)
            await thread.mirror_graph(state["messages"])

        return self._run(session_of(self._session)).turn(begin, Thread.over)

    def _call(self, request: ModelRequest[Any]) -> RunStep[list[AnyMessage], list[BaseMessage]]:
        run = self._run(session_of(self._session))
        return run.call(lambda thread: thread.decide(request), Thread.record_answer)

    def _tool(self, request: ToolCallRequest) -> RunStep[None, ToolEnd]:
        name, call = session_of(self._session), request.tool_call
        return self._run(name).tool(
            call["name"],
            call["id"],
            tool_of(name, call["id"], self._session),
            first=lambda thread: thread.add_answer(request),
            # A tool that asks a person is left so, and begun again with the answer.
            waits=(GraphBubbleUp,),
        )


class Thread(HostSession):
    """A thread's session, and the rows of the messages that its graph holds."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, identity)
        self._rows = KnownRows()

    async def mirror_graph(
        self, messages: Sequence[BaseMessage], *, with_request: bool = False
    ) -> None:
        """Make the transcript the messages of the graph's state."""
        await self.mirror(self._rows.of(messages), with_request=with_request)

    async def over(self, messages: list[AnyMessage]) -> None:
        """Record that the turn is over, with these messages in the graph."""
        await self.mirror_graph(messages)
        await self.turns.turn_ended()

    async def decide(self, request: ModelRequest[Any]) -> list[AnyMessage]:
        """Record a call's request, and return the messages to send."""
        held, model = request.state["messages"], _model_of(request.model)
        await self.mirror_graph(held, with_request=True)
        await self.turns.iteration_began(*_asked(request, model))
        rows = await self.prepare(
            # A text of LangChain's own, which is a subclass of str.
            instructions=None if request.system_prompt is None else str(request.system_prompt),
            tools=tool_definitions(request.tools),
            model=model,
        )
        if request.messages == held:  # the same objects, mostly: those are not looked into
            return self._rows.messages_of(rows)
        await self.sent(rows, [row_of(one) for one in request.messages])
        return request.messages

    async def record_answer(self, messages: list[BaseMessage]) -> None:
        """Record what a call answered; its messages come with the graph's state."""
        for one in messages:
            if isinstance(one, AIMessage):
                metadata = one.response_metadata
                await self.turns.model_known(
                    model=metadata.get("model_name") or metadata.get("model"),
                    usage=read_usage(one.usage_metadata, LANGCHAIN),
                    response_id=metadata.get("id"),
                    finish_reason=metadata.get("finish_reason") or metadata.get("stop_reason"),
                )
        await self.turns.model_answered()

    async def add_answer(self, request: ToolCallRequest) -> None:
        """Add the answer that makes this call, which a crash of the tool might take along."""
        state: Any = request.state
        is_dict = isinstance(state, dict)
        held: Any = state.get("messages") if is_dict else getattr(state, "messages", None)
        last = held[-1] if isinstance(held, list) and held else None
        calls = last.tool_calls if isinstance(last, AIMessage) else []
        if request.tool_call["id"] in [one["id"] for one in calls]:
            await self.mirror_graph(held)


def _end_of(result: Any) -> ToolEnd:
    content = getattr(result, "content", None)
    failed = getattr(result, "status", "success") == "error"
    return ToolEnd(content if isinstance(content, str) else None, "ToolError" if failed else None)


_ADDRESSES: Final = ("base_url", "openai_api_base", "anthropic_api_url", "azure_endpoint")


def _asked(
    request: ModelRequest[Any], name: str | None
) -> tuple[str | None, str | None, CallSettings]:
    """The provider, the model's ``name`` and the settings of a call."""
    model: Any = request.model
    try:
        traced = model._get_ls_params()  # the only place where LangChain names the provider
    except Exception:  # a class of the program
        traced = {}
    provider = traced.get("ls_provider")
    most = request.model_settings.get("max_tokens", traced.get("ls_max_tokens"))
    url = next((found for one in _ADDRESSES if (found := getattr(model, one, None))), None)
    settings = read_settings(stream=_streams(model), max_tokens=most, url=url)
    return provider if isinstance(provider, str) and provider else None, name, settings


def _streams(model: Any) -> bool:
    """Whether a model streams because it is set to, or because its run's tokens are followed."""
    handlers = getattr(_config().get("callbacks"), "handlers", ())
    return getattr(model, "streaming", None) is True or any(
        isinstance(one, _StreamingCallbackHandler) for one in handlers
    )


def _model_of(model: Any) -> str | None:
    for name in ("model_name", "model", "model_id"):
        value = getattr(model, name, None)
        if isinstance(value, str) and value:
            return value
    return None


def session_of(default: str | None) -> str:
    """The session of the run that calls; ``default`` is that of one without a thread.

    Raises InvalidSetting where there is neither.
    """
    thread, around = _thread(default), tool_around()
    if around is None or around.name != thread:
        return thread
    inside = _path()[len(around.path) :]
    number = int(inside[0]) + 1 if inside and inside[0].isdecimal() else 1
    return nested_session_id(around.session, around.call_id, number)


def tool_of(session: str, call_id: str | None, default: str | None) -> ToolAround:
    """The tool call that the run of this session is about to make."""
    return ToolAround(session, call_id or "call", _thread(default), _path())


def agent_name() -> str | None:
    """The name that the agent was made with."""
    name = _config().get("metadata", {}).get("lc_agent_name")
    return name if isinstance(name, str) and name else None


def _thread(default: str | None) -> str:
    thread = _config().get("configurable", {}).get("thread_id", default)
    if thread is None:
        raise InvalidSetting(
            'expected a thread_id (config={"configurable": {"thread_id": …}}), found none: '
            "give one to each run, or session=… to EventctxMiddleware"
        )
    return str(thread)


def _path() -> tuple[str, ...]:
    """The place of a task in its graphs, outermost first, which LangGraph numbers."""
    name = _config().get("configurable", {}).get("checkpoint_ns")
    return tuple(str(name).split("|")) if name else ()


def _config() -> Any:
    try:
        return get_config()
    except RuntimeError:  # outside of a graph
        return {}


class KnownRows:
    """The rows of the messages that a graph holds, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[BaseMessage, Row]] = {}
        self._said: dict[int, tuple[Row, Hashable]] = {}

    def of(self, messages: Sequence[BaseMessage]) -> list[Row]:
        """The messages' rows; those of messages that are not among them are forgotten."""
        found: dict[int, tuple[BaseMessage, Row]] = {}
        for one in messages:
            known = self._made.get(id(one))
            if known is None or known[0] is not one or changed(one, known[1]):
                known = (one, row_of(one))
            found[id(one)] = known
        self._made = found
        return [row for _, row in found.values()]

    def messages_of(self, rows: Sequence[Row]) -> list[AnyMessage]:
        """Rows of a view as messages; those that were made of a message are that message."""
        known: list[tuple[Any, Row]] = list(self._made.values())
        places: dict[Hashable, int] | None = None
        found: list[AnyMessage] = []
        start = 0
        for row in rows:
            # Views keep the order: mostly the next row is the next message, which costs no digest.
            ahead = range(start, len(known))
            place = next((at for at in ahead if known[at][1] == row), None)
            if place is None:
                if places is None:
                    places = self._places([one for _, one in known])
                place = places.get(identity(row))
            found.append(message_of(row) if place is None else known[place][0])
            start = start if place is None else place + 1
        return found

    def _places(self, rows: Sequence[Row]) -> dict[Hashable, int]:
        """The rows' places by what they say. A digest is made once: it reads the whole message."""
        before = self._said
        self._said = {}
        for one in rows:
            known = before.get(id(one))
            new = known is None or known[0] is not one
            self._said[id(one)] = (one, identity(one)) if new or known is None else known
        return {said: at for at, (_, said) in enumerate(self._said.values())}


def tool_definitions(tools: Sequence[BaseTool | dict[str, Any]]) -> list[Row]:
    """The tools' definitions in OpenAI's form, which counts about as those of other APIs do."""
    return [convert_to_openai_tool(one) for one in tools]
