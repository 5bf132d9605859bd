"""Pydantic AI's SqliteConversationStore, of pydantic-ai-harness: one row for a conversation.

An append is one ``save`` of the whole history, as after a run. Its database is in WAL mode.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_harness.step_persistence.conversations import (
    ConversationSummary,
    SqliteConversationStore,
)

from tests.benchmarks.peers.child import Message

PACKAGE = "pydantic-ai-harness"
WHAT = {
    "append": "save of the history with one message more",
    "load": "get in a fresh store object",
    "prepare": "OpenAIChatModel._map_messages of the history, which every model call makes",
}


async def opened(folder: Path, messages: list[Message]) -> PydanticAI:
    made = PydanticAI(folder / "pydantic-ai.db", [_mapped(one) for one in messages])
    await made.save()
    return made


class PydanticAI:
    def __init__(self, path: Path, history: list[ModelMessage]) -> None:
        self._path = path
        self._history = history
        self._store = SqliteConversationStore(database=path)
        self._summary = ConversationSummary(workspace="bench")
        provider = OpenAIProvider(api_key="none", base_url="http://127.0.0.1:9/v1")
        self._model = OpenAIChatModel("a-model", provider=provider)

    async def save(self) -> None:
        self._summary = await self._store.save(summary=self._summary, messages=self._history)

    @asynccontextmanager
    async def append(self, message: Message) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        self._history.append(_mapped(message))
        yield self.save

    @asynccontextmanager
    async def load(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        fresh = SqliteConversationStore(database=self._path)
        yield partial(fresh.get, conversation_id=self._summary.id)

    @asynccontextmanager
    async def prepare(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        yield partial(self._model._map_messages, self._history, ModelRequestParameters())


def _mapped(message: Message) -> ModelMessage:
    match message["role"]:
        case "user":
            return ModelRequest(parts=[UserPromptPart(content=message["content"])])
        case "tool":
            call, text = message["tool_call_id"], message["content"]
            returned = ToolReturnPart(tool_name="read_file", content=text, tool_call_id=call)
            return ModelRequest(parts=[returned])
    calls = [
        ToolCallPart(
            tool_name=call["function"]["name"],
            args=json.loads(call["function"]["arguments"]),
            tool_call_id=call["id"],
        )
        for call in message.get("tool_calls", ())
    ]
    return ModelResponse(parts=[TextPart(content=message["content"]), *calls])
