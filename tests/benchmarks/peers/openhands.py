"""OpenHands' SDK: the conversation's state over its file store, one file an event.

Each file is synced and renamed into place. The folder is not synced after the rename, so what a
power cut leaves of the newest events is up to the file system; there is no setting for it.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from openhands.sdk import LLM, Agent, TextContent
from openhands.sdk.agent.utils import prepare_llm_messages
from openhands.sdk.conversation.state import ConversationState
from openhands.sdk.event import ActionEvent, MessageEvent, ObservationEvent
from openhands.sdk.llm import Message as ModelMessage
from openhands.sdk.llm import MessageToolCall
from openhands.sdk.tool.builtins.think import ThinkAction, ThinkObservation
from openhands.sdk.workspace import LocalWorkspace
from pydantic import SecretStr

from tests.benchmarks.peers.child import Message, memory_folder

PACKAGE = "openhands-sdk"
WHAT = {
    "append": "append_event of the conversation's state",
    "load": "ConversationState.create of what is there, and its view",
    "prepare": "prepare_llm_messages of the view, which every step makes",
}
KEPT = "conversation"
_NUMBER = UUID(int=1)


async def opened(folder: Path, messages: list[Message]) -> OpenHands:
    with memory_folder() as memory:
        building = OpenHands(memory)
        for one in messages:
            async with building.append(one) as work:
                await work()
        shutil.copytree(memory / KEPT, folder / KEPT)
    return OpenHands(folder)


class OpenHands:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        llm = LLM(model="openai/gpt-4o", api_key=SecretStr("none"), usage_id="bench")
        self._agent = Agent(llm=llm, tools=[], include_default_tools=["ThinkTool"])
        self._state = self._created()
        self._action = ""

    def _created(self) -> ConversationState:
        return ConversationState.create(
            id=_NUMBER,
            agent=self._agent,
            workspace=LocalWorkspace(working_dir=str(self._folder)),
            persistence_dir=str(self._folder / KEPT),
        )

    @asynccontextmanager
    async def append(self, message: Message) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        event = self._event(message)

        async def work() -> None:
            with self._state:
                self._state.append_event(event)

        yield work

    @asynccontextmanager
    async def load(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        async def work() -> None:
            len(self._created().view.events)

        yield work

    @asynccontextmanager
    async def prepare(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        async def work() -> None:
            prepare_llm_messages(self._state.view)

        yield work

    def _event(self, message: Message) -> Any:
        if message["role"] == "tool":
            return ObservationEvent(
                observation=ThinkObservation.from_text(message["content"]),
                action_id=self._action,
                tool_name="think",
                tool_call_id=message["tool_call_id"],
            )
        text = [TextContent(text=message["content"])]
        if not (calls := message.get("tool_calls")):
            role = message["role"]
            source = "user" if role == "user" else "agent"
            return MessageEvent(source=source, llm_message=ModelMessage(role=role, content=text))
        (call,) = calls
        arguments = call["function"]["arguments"]
        event = ActionEvent(
            thought=text,
            action=ThinkAction(thought=arguments),
            tool_name="think",
            tool_call_id=call["id"],
            tool_call=MessageToolCall(
                id=call["id"], name="think", arguments=arguments, origin="completion"
            ),
            llm_response_id=call["id"],
        )
        self._action = event.id
        return event
