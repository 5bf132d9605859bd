"""The adapter's one object: middleware for agents, and a history provider.

A conversation is a session, a run a turn, and each call of the chat client is sent the session's
view. The framework's own history stays as it is, unless ``history`` takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    AgentResponse,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    HistoryProvider,
    Message,
    MiddlewareBundle,
    MiddlewareTermination,
    ResponseStream,
    UserInputRequiredException,
    included_messages,
)

from eventctx.adapters.agent_framework.conversation import AgentConversation, ChatCall
from eventctx.adapters.agent_framework.rows import instructions_of, tool_definitions
from eventctx.adapters.agent_framework.runs import (
    CALLER,
    RUN,
    SOURCE_ID,
    AgentRun,
    Caller,
    Conversations,
    watched,
    within,
)
from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.adapters.kit.host_run import RunStep, ToolEnd
from eventctx.engine import Engine
from eventctx.log.turn_recorder import read_settings

Next = Callable[[], Awaitable[None]]

_LOCAL_HISTORY: Final = "agent_framework_local_history_persistence"
"""The conversation id of a run whose history is loaded for each call: no server keeps it."""


class EventctxAgents:
    """Records each conversation of an agent as a session, and sends the session's view.

    ``engine``: an engine, for runs in its event loop or another one; or the path or URL of a store,
    which is opened in a thread of its own. ``session`` names the one session of all runs, which is
    else the id of the run's ``AgentSession``. ``settings`` are those of ``engine.session``. Put it
    last in an agent's ``middleware``. Runs of one conversation follow each other.

    Raises InvalidSetting for an engine outside of its loop, and what opening a store raises.
    """

    def __init__(
        self,
        engine: Engine | str | os.PathLike[str],
        session: str | None = None,
        **settings: Any,
    ) -> None:
        given = GivenEngine(engine, "agent-framework")
        self._conversations = Conversations(given, session, settings)
        self._middleware = (
            AgentRuns(self._conversations),
            FunctionCalls(self._conversations),
            ChatCalls(self._conversations),
        )

    @property
    def middleware(self) -> list[AgentMiddleware | FunctionMiddleware | ChatMiddleware]:
        """The middleware of an agent: of its runs, its functions and its chat client's calls."""
        return list(self._middleware)

    @property
    def bundle(self) -> MiddlewareBundle:
        """The same as one unit, a class that the framework calls experimental."""
        return MiddlewareBundle(self._middleware)

    @property
    def history(self) -> EventctxHistory:
        """The provider for ``context_providers`` that keeps the conversation in the log alone."""
        return EventctxHistory(self._conversations)

    def close(self) -> None:
        """Close the store that was opened here. An engine that was given stays open."""
        self._conversations.given.close()


class EventctxHistory(HistoryProvider):
    """The framework's history, kept in the session. ``EventctxAgents.history`` makes it."""

    def __init__(self, conversations: Conversations) -> None:
        super().__init__(SOURCE_ID)
        self._conversations = conversations

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **more: Any
    ) -> list[Message]:
        """The conversation, never compacted. Raises InvalidSetting without a session."""
        name = self._conversations.named(session_id)

        async def transcript(found: AgentConversation) -> list[Message]:
            return [] if found.decides else found.history()

        return await self._conversations.reports(name).do(transcript)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Add messages; those of a run with our middleware are in the log already."""
        name = self._conversations.named(session_id)
        if RUN.get() is None:
            await self._conversations.reports(name).do(lambda found: found.store(messages))


# -- the middleware -----------------------------------------------------------------------------


class AgentRuns(AgentMiddleware):
    """Records each run of an agent as a turn."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def process(self, context: AgentContext, call_next: Next) -> None:
        """Record the run around it; a streamed one ends with its stream."""
        run = self._conversations.run(context.agent, context.session, CALLER.get())
        async with self._turn(run) as turn:
            try:
                with within(run):
                    await call_next()
            except MiddlewareTermination:
                turn.ends_with(context.result)
                raise
            result: Any = context.result
            if isinstance(result, ResponseStream):
                context.result = watched(result, turn, run)
            else:
                turn.ends_with(result)

    def _turn(self, run: AgentRun) -> RunStep[None, Any]:
        caller, engine = CALLER.get(), self._conversations.given.engine

        async def begin(found: AgentConversation) -> None:
            if await found.begin(run.name) and caller is not None:
                await engine.link(caller.session, run.session, call_id=caller.call_id)

        async def over(found: AgentConversation, result: Any) -> None:
            self._conversations.run_over(run)
            await found.over(result.messages if isinstance(result, AgentResponse) else None)

        async def failed(found: AgentConversation, error: BaseException) -> None:
            self._conversations.run_over(run)
            await found.failed(error)

        return self._conversations.reports(run.session).turn(begin, over, failed)


class ChatCalls(ChatMiddleware):
    """Records each call of a run to its chat client, and sends the session's view."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def process(self, context: ChatContext, call_next: Next) -> None:
        """Send the view in place of the list that the call was given."""
        run = RUN.get()
        if run is None:  # a call that no agent makes
            await call_next()
            return
        asked = _read_call(run, context)
        given = handed = made = context.messages

        async def answered(found: AgentConversation, response: ChatResponse[Any] | None) -> None:
            sent = included_messages(list(made))
            if asked.others_decide or [id(one) for one in sent] != [id(one) for one in handed]:
                await found.record_changed(sent)
            if response is not None:
                await found.record_answer(response)

        reports = self._conversations.reports(run.session)
        async with reports.call(lambda found: found.decide(asked), answered) as call:
            context.messages = handed = call.begun
            try:
                await call_next()
            finally:
                # Before anything is awaited: a middleware that calls again has its own list.
                made, context.messages = context.messages, given
            result: Any = context.result
            if isinstance(result, ResponseStream):
                context.result = watched(result, call, run)
            else:
                call.ends_with(result)


class FunctionCalls(FunctionMiddleware):
    """Records each call of a run's functions, and what runs in them as called by it."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """Record the call around it."""
        run = RUN.get()
        if run is None:
            await call_next()
            return
        call_id = str(context.metadata.get("call_id"))
        async with self._conversations.reports(run.session).tool(
            context.function.name, call_id, waits=(UserInputRequiredException,)
        ) as tool:
            try:
                with within(None, Caller(run.session, call_id)):
                    await call_next()
            except MiddlewareTermination:
                tool.ends_with(ToolEnd(_text_of(context.result)))
                raise
            tool.ends_with(ToolEnd(_text_of(context.result)))


def _read_call(run: AgentRun, context: ChatContext) -> ChatCall:
    """A call as its context says it."""
    options = context.options or {}
    histories = {one.source_id for one in run.histories}
    named = options.get("conversation_id") or context.kwargs.get("conversation_id")
    continued = named is not None and named != _LOCAL_HISTORY
    kept = options.get("store")
    if kept is None:
        kept = getattr(context.client, "STORES_BY_DEFAULT", False)
    compacts = context.kwargs.get("compaction_strategy") or getattr(
        context.client, "compaction_strategy", None
    )
    provider = getattr(context.client, "OTEL_PROVIDER_NAME", None)
    model = options.get("model") or getattr(context.client, "model", None)
    return ChatCall(
        messages=list(context.messages),
        passing=[one for one in context.messages if _passes(one, histories)],
        instructions=instructions_of(options),
        tools=tool_definitions(options),
        model=model if isinstance(model, str) and model else None,
        provider=provider if isinstance(provider, str) and provider != "unknown" else None,
        settings=read_settings(
            stream=context.stream,
            max_tokens=options.get("max_tokens"),
            url=getattr(getattr(context.client, "client", None), "base_url", None),
        ),
        only_new=continued or run.per_call,
        on_server=continued or bool(kept),
        others_decide=compacts is not None or (run.per_call and not run.owned),
    )


def _passes(message: Message, histories: set[str]) -> bool:
    """Whether a message is one that a context provider adds to each call anew."""
    attribution = message.additional_properties.get("_attribution")
    source = attribution.get("source_id") if isinstance(attribution, dict) else None
    return source is not None and source not in histories


def _text_of(result: Any) -> str | None:
    """The text of a function's result, if it is one."""
    if isinstance(result, str):
        return result
    if isinstance(result, list) and len(result) == 1 and isinstance(result[0], Content):
        return result[0].text
    return None
