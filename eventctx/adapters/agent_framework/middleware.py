"""The three kinds of middleware that record a run, its calls, and its functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

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
    Message,
    MiddlewareTermination,
    ResponseStream,
    UserInputRequiredException,
    included_messages,
)

from eventctx.adapters.agent_framework.conversation import ChatCall, Conversation
from eventctx.adapters.agent_framework.conversations import Conversations
from eventctx.adapters.agent_framework.rows import instructions_of, tool_definitions
from eventctx.adapters.agent_framework.runs import CALLER, RUN, AgentRun, Caller, watched, within
from eventctx.adapters.kit.failures import tool_failed

T = TypeVar("T")
Next = Callable[[], Awaitable[None]]
Work = Callable[[Conversation], Coroutine[Any, Any, T]]

_LOCAL_HISTORY: Final = "agent_framework_local_history_persistence"
"""The conversation id of a run whose history is loaded for each call: no server keeps it."""


class _Seam:
    """What each middleware does in the engine's loop."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def _in(self, session: str, work: Work[T]) -> T:
        async def done() -> T:
            return await work(await self._conversations.of(session))

        return await self._conversations.given.run(done())


class AgentRuns(_Seam, AgentMiddleware):
    """Records each run of an agent as a turn."""

    async def process(self, context: AgentContext, call_next: Next) -> None:
        """Record the run around it; a streamed one ends with its stream."""
        caller = CALLER.get()
        run = self._conversations.run(context.agent, context.session, caller)
        new = await self._in(run.session, lambda found: found.began(run.name))
        if new and caller is not None:
            await self._conversations.given.run(self._conversations.link(caller, run.session))

        async def ended(result: Any) -> None:
            messages = result.messages if isinstance(result, AgentResponse) else None
            self._conversations.run_over(run)
            await self._in(run.session, lambda found: found.over(messages))

        async def failed(error: BaseException) -> None:
            self._conversations.run_over(run)
            await self._in(run.session, lambda found: found.failed(error))

        try:
            with within(run):
                await call_next()
        except MiddlewareTermination:
            await ended(context.result)
            raise
        except BaseException as error:
            await failed(error)
            raise
        result: Any = context.result
        if isinstance(result, ResponseStream):
            context.result = watched(result, ended, failed, run)
        else:
            await ended(result)


class ChatCalls(_Seam, ChatMiddleware):
    """Records each call of a run to its chat client, and sends the session's view."""

    async def process(self, context: ChatContext, call_next: Next) -> None:
        """Send the view in place of the list that the call was given."""
        run = RUN.get()
        if run is None:  # a call that no agent makes
            await call_next()
            return
        asked = _asked(run, context)
        given, handed = context.messages, await self._decided(run, asked)
        context.messages = handed
        try:
            await call_next()
        except BaseException as error:
            await self._failed(run, error)
            raise
        finally:
            # Before anything is awaited: a middleware that calls again begins with its own list.
            made, context.messages = context.messages, given

        async def ended(response: ChatResponse[Any] | None) -> None:
            await self._answered(run, asked, handed, made, response)

        async def failed(error: BaseException) -> None:
            await self._failed(run, error)

        result: Any = context.result
        if isinstance(result, ResponseStream):
            context.result = watched(result, ended, failed, run)
        else:
            await ended(result)

    async def _decided(self, run: AgentRun, asked: ChatCall) -> list[Message]:
        return await self._in(run.session, lambda found: found.decided(asked))

    async def _answered(
        self,
        run: AgentRun,
        asked: ChatCall,
        handed: Sequence[Message],
        made: Sequence[Message],
        response: ChatResponse[Any] | None,
    ) -> None:
        sent = included_messages(list(made))
        changed = [id(one) for one in sent] != [id(one) for one in handed]

        async def answered(found: Conversation) -> None:
            if changed or asked.others_decide:
                await found.sent(sent)
            if response is not None:
                await found.answered(response)

        await self._in(run.session, answered)

    async def _failed(self, run: AgentRun, error: BaseException) -> None:
        await self._in(run.session, lambda found: found.call_failed(error))


class FunctionCalls(_Seam, FunctionMiddleware):
    """Records each call of a run's functions, and what runs in them as called by it."""

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """Record the call around it."""
        run = RUN.get()
        if run is None:
            await call_next()
            return
        name, call_id = context.function.name, str(context.metadata.get("call_id"))
        await self._in(run.session, lambda found: found.turns.tool_began(name, call_id, call_id))
        try:
            with within(None, Caller(run.session, call_id)):
                await call_next()
        except MiddlewareTermination:
            await self._ended(run, name, call_id, context.result)
            raise
        except BaseException as error:
            await self._failed(run, name, call_id, error)
            raise
        await self._ended(run, name, call_id, context.result)

    async def _ended(self, run: AgentRun, name: str, call_id: str, result: Any) -> None:
        text = _text_of(result)
        await self._in(run.session, lambda found: found.turns.tool_ended(call_id, text, name=name))

    async def _failed(self, run: AgentRun, name: str, call_id: str, error: BaseException) -> None:
        waits = isinstance(error, UserInputRequiredException)
        await self._in(
            run.session,
            lambda found: tool_failed(found.turns, call_id, error, name=name, cancelled=waits),
        )


def _asked(run: AgentRun, context: ChatContext) -> ChatCall:
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
        only_new=continued or run.per_call,
        on_server=continued or bool(kept),
        others_decide=compacts is not None or (run.per_call and not run.owned),
    )


def _passes(message: Message, histories: set[str]) -> bool:
    """Whether a message is one that a context provider adds to each call anew."""
    told = message.additional_properties.get("_attribution")
    source = told.get("source_id") if isinstance(told, dict) else None
    return source is not None and source not in histories


def _text_of(result: Any) -> str | None:
    """The text of a function's result, if it is one."""
    if isinstance(result, str):
        return result
    if isinstance(result, list) and len(result) == 1 and isinstance(result[0], Content):
        return result[0].text
    return None
