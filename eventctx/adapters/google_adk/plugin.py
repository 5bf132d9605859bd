"""The plugin of an ADK runner: a session is a session, an invocation a turn.

ADK derives what it sends from the session's events, for each agent anew, so the list of each agent
is compared with its transcript. New contents are added; a list that another plugin or a
compaction of ADK's own cut is sent as it is, and what is missing in it is recorded.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from google.adk.plugins.base_plugin import BasePlugin

from eventctx.adapters.google_adk.rows import (
    CallIds,
    Row,
    calls_in,
    contents_of,
    identity,
    instructions_of,
    joined,
    named,
    rows_of,
    tool_definitions,
)
from eventctx.adapters.kit.given_engine import GivenEngine, OpenSessions
from eventctx.adapters.kit.host_run import HostRun, RunStep, ToolEnd, call_failed, turn_failed
from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.kit.nested import (
    ToolAround,
    begin_turn,
    tool_around,
    tool_entered,
    tool_left,
)
from eventctx.engine import Engine
from eventctx.log.turn_recorder import read_settings
from eventctx.log.usage import GEMINI, read_usage
from eventctx.session.context import Context

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.sessions import Session
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types

MAX_RUNS: Final = 1_024
"""Most invocations that are remembered until they end; one whose task was killed never does."""


class _Run:
    """An invocation: its root agent, the tool that runs it, the sessions where it began a turn."""

    def __init__(self, session: str, root: str | None) -> None:
        self.session = session
        self.root = root
        self.around = tool_around()
        self.begun: list[str] = []


class EventctxPlugin(BasePlugin):  # type: ignore[misc]
    """Records the agents of a runner, and sends the sessions' views.

    ``engine``: an engine, for runs in its event loop or another one; or the path or URL of a store,
    which the plugin opens in a thread of its own. The root agent's session has the id of ADK's, any
    other agent's that id, a dot and the agent's name. ``session_name`` gives another one of ADK's
    session, where its ids are not unique in the store. ``settings`` are those of
    ``engine.session``. Put it last among the plugins.

    Raises InvalidSetting for an engine outside of its loop, and what opening a store raises.
    """

    def __init__(
        self,
        engine: Engine | str | os.PathLike[str],
        *,
        session_name: Callable[[Session], str] = attrgetter("id"),
        **settings: Any,
    ) -> None:
        super().__init__(name="eventctx")
        self._session_name = session_name
        self._given = GivenEngine(engine, "google-adk")
        self._settings = settings
        self._open: OpenSessions[AdkSession] = OpenSessions()
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def __deepcopy__(self, memo: object) -> EventctxPlugin:
        """Itself: an agent that was copied records with the same adapter."""
        return self

    async def close(self) -> None:
        """Close the store that the plugin opened; ADK calls it. A given engine stays open."""
        await asyncio.to_thread(self._given.close)

    # -- ADK's callbacks -------------------------------------------------------------------------

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Note the invocation; its turns begin with the first request of each agent."""
        session = self._session_name(invocation_context.session)
        agent = invocation_context.agent  # None where a Workflow is the root
        run = _Run(session, None if agent is None else agent.root_agent.name)
        self._runs[invocation_context.invocation_id] = run
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """The turns of the invocation are over."""
        await self._given.run(self._over(invocation_context.invocation_id, None))

    async def on_run_error_callback(
        self, *, invocation_context: InvocationContext, error: Exception
    ) -> None:
        """The turns of the invocation failed."""
        await self._given.run(self._over(invocation_context.invocation_id, error))

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> None:
        """Send the view instead of the request's contents."""
        run = self._run(callback_context)
        llm_request.contents = await run.do(
            lambda session: session.decide(callback_context, llm_request)
        )

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> None:
        """Record the answer before its tools run; pieces of a stream come together in its last."""
        if not llm_response.partial:
            run = self._run(callback_context)
            await run.do(lambda session: session.record_answer(llm_response))

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Record that the model call failed."""
        await self._run(callback_context).do(lambda session: call_failed(session.turns, error))

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        """Record that a tool call began."""
        await self._tool(tool, tool_context).begin()
        name = self._name(tool_context)
        tool_entered(ToolAround(name, str(tool_context.function_call_id), name))

    async def after_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        result: Any,
    ) -> None:
        """Record that a tool call ended."""
        tool_left()
        answer = result.get("result") if isinstance(result, dict) and len(result) == 1 else result
        end = ToolEnd(answer if isinstance(answer, str) else None)
        await self._tool(tool, tool_context).end(end)

    async def on_tool_error_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        error: BaseException,
    ) -> None:
        """Record that a tool call failed, or was cancelled."""
        tool_left()
        await self._tool(tool, tool_context).fail(error)

    # -- reports ---------------------------------------------------------------------------------

    def _run(self, context: CallbackContext) -> HostRun[AdkSession]:
        return HostRun(self._given, lambda: self._session(context))

    def _tool(self, tool: BaseTool, context: ToolContext) -> RunStep[None, ToolEnd]:
        return self._run(context).tool(tool.name, context.function_call_id)

    def _name(self, context: CallbackContext) -> str:
        """The session of the agent that calls."""
        run = self._runs.get(context.invocation_id)
        session, agent = self._session_name(context.session), context.agent_name
        return session if run is None or agent == run.root else f"{session}.{agent}"

    async def _session(self, context: CallbackContext) -> AdkSession:
        """The session of the agent that calls, in which a turn is begun."""
        engine, name = self._given.engine, self._name(context)
        run = self._runs.get(context.invocation_id)

        async def opened() -> AdkSession:
            found = await engine.session(name, **self._settings)
            return AdkSession(found, await found.get_messages())

        session = await self._open.of(name, opened)
        if run is not None and name not in run.begun:
            run.begun.append(name)
            turn_id = context.invocation_id
            await begin_turn(engine, session, context.agent_name, run.around, turn_id)
            whole = self._session_name(context.session)
            if session.new and name != whole:
                await engine.link(whole, name)
            session.new = False
        return session

    async def _over(self, invocation: str, error: BaseException | None) -> None:
        run = self._runs.pop(invocation, None)
        for name in [] if run is None else run.begun:
            session = self._open.get(name)
            if session is None:
                continue
            if error is None:
                await session.turns.turn_ended()
            else:
                await turn_failed(session.turns, error)


class AdkSession(HostSession):
    """The session of one agent."""

    def __init__(self, context: Context, transcript: Sequence[Row]) -> None:
        super().__init__(context, identity)
        self.new = True
        """Whether no turn was begun in it since it was opened."""
        self._ids = CallIds(transcript)
        self._calling = transcript[-1] if transcript and calls_in(transcript[-1]) else None

    async def decide(self, context: CallbackContext, request: LlmRequest) -> list[types.Content]:
        """Record a call's request, and return the contents to send."""
        await self._take_out_unstored(context)
        sends = rows_of(request.contents)
        # With the log's ids most rows are equal, which needs no identities.
        whole = named(sends)
        found = await self.held(whole)
        await self.add(await self._named(found.new), with_request=True)
        settings = read_settings(
            stream=_streams(context), max_tokens=request.config.max_output_tokens
        )
        await self.turns.iteration_began(provider_of(request.model), request.model, settings)
        rows = await self.prepare(
            instructions=instructions_of(request.config),
            tools=tool_definitions(request.config),
            model=request.model,
        )
        if found.whole and request.previous_interaction_id is None:
            return joined(contents_of(rows, request.contents, whole))
        await self.sent(rows, sends)
        return list(request.contents)

    async def record_answer(self, response: LlmResponse) -> None:
        """Record what a call answered, or that it failed."""
        if response.error_code and response.content is None:
            error = str(response.error_message or "")
            await self.turns.model_failed(str(response.error_code), error)
            return
        reason = response.finish_reason
        await self.turns.model_known(
            model=response.model_version,
            usage=read_usage(response.usage_metadata, GEMINI),
            response_id=response.interaction_id,
            finish_reason=None if reason is None else str(getattr(reason, "value", reason)),
        )
        await self.turns.model_answered()
        if response.content is not None and response.content.parts:
            rows = await self._named(rows_of([response.content]))
            self._calling = rows[-1] if calls_in(rows[-1]) else None
            await self.add(rows)

    async def _take_out_unstored(self, context: CallbackContext) -> None:
        """Take out the last answer if it called tools and ADK has no event of it.

        A list does not say that: ADK leaves out all calls that an interrupted run left open.
        """
        answer, self._calling = self._calling, None
        if answer is None:
            return
        own = [one for one in context.session.events if one.author == context.agent_name]
        contents = (one.content for one in reversed(own) if one.content is not None)
        if all(identity(answer) != identity(rows_of([one])[0]) for one in contents):
            await self.pop()

    async def _named(self, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
        """The rows, with the ids that ADK took from their calls."""
        if self._ids.messages != (await self.context.transcript_mark()).messages:
            self._ids = CallIds(await self.messages())
        return [self._ids.named(dict(row)) for row in rows]


def _streams(context: CallbackContext) -> bool:
    mode = None if context.run_config is None else context.run_config.streaming_mode
    return mode is not None and mode.value == "sse"


_PLACES: Final = ("endpoints", "locations", "models", "projects", "publishers", "tunedModels")
"""Words with which the path of a resource begins, which is no name of a provider."""


def provider_of(model: str | None) -> str | None:
    """The provider of a model, by its name: that before its slash, else Anthropic or Google.

    ADK tells it nowhere. Google's models are asked at Vertex AI or at Gemini's API, as the
    variables of ``google-genai`` say. None for other names.
    """
    prefix, slash, _ = (model or "").partition("/")
    if slash and prefix not in _PLACES:
        return prefix
    name = (model or "").rpartition("/")[2]
    if name.startswith("claude"):
        return "anthropic"
    if not name.startswith(("gemini", "gemma")):
        return None
    cloud = [os.environ.get(name, "").lower() for name in _CLOUD]
    return "gcp.vertex_ai" if {"1", "true"} & set(cloud) else "gcp.gemini"


_CLOUD: Final = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
