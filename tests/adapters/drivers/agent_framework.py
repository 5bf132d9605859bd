"""Drives agents of Microsoft Agent Framework on a script; what the log says of their runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    ResponseStream,
)

from eventctx.adapters.agent_framework import EventctxAgents
from eventctx.adapters.agent_framework.rows import instructions_of, rows_of
from eventctx.engine import Engine
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of

NOT_SHOWN = ("hosted", "exception")


class AgentFrameworkDriver(Driver):
    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._client = ScriptedChat(script=agent.script)
        ours = EventctxAgents(engine, **agent.settings)
        before: list[Any] = [Retries(agent.retries)] if agent.retries else []
        if agent.keep_last is not None:
            before.append(KeepLast(agent.keep_last))
        self._agent = Agent(
            self._client,
            agent.instructions,
            name="agent",
            tools=[FunctionTool(name=one.__name__, func=one) for one in agent.tools],
            default_options={"max_tokens": 900},
            middleware=[*before, *ours.middleware],
            context_providers=[ours.history],
        )
        self._session = AgentSession(session_id=agent.session)

    async def ask(self, text: str, *, stream: bool = False) -> str:
        if not stream:
            return (await self._agent.run(text, session=self._session)).text
        running = self._agent.run(text, session=self._session, stream=True)
        pieces = [one.text async for one in running if one.text]
        final = await running.get_final_response()
        assert len(pieces) > 1, "the host did not stream"
        return final.messages[-1].text

    def received(self) -> list[list[Any]]:
        return [
            self.request(instructions_of(options), rows_of(messages))
            for messages, options in self._client.seen
        ]

    def shown(self, row: dict[str, Any]) -> Any:
        return json.loads(json.dumps(shown(row)))


def shown(row: Mapping[str, Any]) -> Any:
    """What a model is shown of a row: without the ids of messages and of the framework."""
    content = row["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [{k: v for k, v in one.items() if k not in NOT_SHOWN} for one in content]
    return row["role"], blocks


class Scripted(BaseChatClient[Any]):
    """Answers by a script, streamed in pieces, and keeps what it received."""

    OTEL_PROVIDER_NAME = "openai"

    def __init__(self, *, script: Sequence[Reply | Exception], **more: Any) -> None:
        super().__init__(**more)
        self.script = list(script)
        self.seen: list[tuple[list[Message], dict[str, Any]]] = []
        self.model = "scripted"
        self.client = SimpleNamespace(base_url="https://api.example.org/v1")
        self.conversation: str | None = None

    def _inner_get_response(self, *, messages: Any, stream: Any, options: Any, **more: Any) -> Any:
        def next_step() -> Reply:
            self.seen.append((list(messages), dict(options)))
            step = self.script.pop(0)
            if isinstance(step, Exception):
                raise step
            return step

        async def whole() -> ChatResponse:
            return self.response(next_step())

        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            response = self.response(next_step())
            for content in response.messages[0].contents:
                text = content.text or ""
                parts = [Content.from_text(one) for one in (text[:3], text[3:])]
                for part in parts if content.type == "text" else [content]:
                    yield update(response, part)
            if response.usage_details:
                yield update(response, Content.from_usage(response.usage_details))

        if stream:
            return ResponseStream(pieces(), finalizer=ChatResponse.from_updates)
        return whole()

    def response(self, reply: Reply) -> ChatResponse:
        contents = [Content.from_text(reply.text)] if reply.text else []
        contents += [
            Content.from_function_call(one.id, one.name, arguments=json.dumps(one.arguments))
            for one in calls_of(reply)
        ]
        used = reply.usage
        usage: Any = used and {"input_token_count": used.prompt, "output_token_count": used.output}
        return ChatResponse(
            messages=Message("assistant", contents),
            usage_details=usage,
            model="scripted-1",
            response_id=f"response-{len(self.seen)}",
            conversation_id=self.conversation,
            finish_reason="tool_calls" if reply.calls else "stop",
        )


class ScriptedChat(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], Scripted):
    """The client with the layers that the framework's own clients have."""


def update(response: ChatResponse, content: Content) -> ChatResponseUpdate:
    same = ("model", "response_id", "conversation_id", "finish_reason")
    given: Any = {name: getattr(response, name) for name in same}
    number = response.response_id
    return ChatResponseUpdate(contents=[content], role="assistant", message_id=number, **given)


class KeepLast(ChatMiddleware):
    def __init__(self, number: int) -> None:
        self._number = number

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        context.messages = list(context.messages)[-self._number :]
        await call_next()


class Retries(ChatMiddleware):
    """Makes another attempt where one failed, also where a stream failed in its beginning."""

    def __init__(self, number: int) -> None:
        self._left = number

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        try:
            await call_next()
        except ConnectionError as error:
            self._try_again_after(error)
            await call_next()
        if context.stream:
            again = self._again(context.result, context, call_next)
            context.result = ResponseStream(again, finalizer=ChatResponse.from_updates)

    def _try_again_after(self, error: ConnectionError) -> None:
        if not self._left:
            raise error
        self._left -= 1

    async def _again(
        self, stream: Any, context: ChatContext, call_next: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[ChatResponseUpdate]:
        try:
            async for one in stream:
                yield one
            return
        except ConnectionError as error:
            self._try_again_after(error)
        await call_next()
        stream = context.result
        async for one in stream:
            yield one


def agent_of(client: ScriptedChat, ours: EventctxAgents, **more: Any) -> Agent[Any]:
    given = {"name": "agent", "middleware": ours.middleware, **more}
    return Agent(client, "Be brief.", **given)


def script(*steps: Reply | Exception | str, **more: Any) -> ScriptedChat:
    replies = [Reply(one) if isinstance(one, str) else one for one in steps]
    return ScriptedChat(script=replies, **more)


def read(page: int) -> str:
    return f"page {page}: " + "words " * 400


def reads(page: int) -> Reply:
    return Reply(calls=[ToolRequest(f"call_{page}", "read", {"page": page})])


async def texts(engine: Engine, session: str = "s") -> list[str]:
    rows = [one.message for one in await engine.transcript(session)]
    return [str(row["content"][0].get("text", row["content"][0]["type"])) for row in rows]


def sent(client: ScriptedChat) -> list[list[str]]:
    return [[one.text or one.role for one in messages] for messages, _ in client.seen]


async def talk(
    agent: Agent[Any], *texts: Any, session: AgentSession | None = None, stream: bool = False
) -> AgentSession:
    """Ask the agent in one session, named ``s`` unless it is given."""
    session = session or AgentSession(session_id="s")
    for text in texts:
        if stream:
            await agent.run(text, session=session, stream=True).get_final_response()
        else:
            await agent.run(text, session=session)
    return session


HOW = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
