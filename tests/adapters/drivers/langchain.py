"""Drives agents of LangChain, with a model that follows a script and a checkpointer in a file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelRetryMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langgraph.rows import row_of
from eventctx.engine import Engine
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of


class LangChainDriver(Driver):
    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._run: Any = {"configurable": {"thread_id": agent.session}, "recursion_limit": 100}
        self._model = ScriptedChat(script=list(agent.script))
        before: list[Any] = []
        if agent.retries:
            before.append(
                ModelRetryMiddleware(
                    max_retries=agent.retries, initial_delay=0, jitter=False, on_failure="error"
                )
            )
        if agent.keep_last is not None:
            before.append(KeepLast(agent.keep_last))
        ours = EventctxMiddleware(engine, **agent.settings)
        self._agent = create_agent(
            self._model,
            [StructuredTool.from_function(coroutine=one) for one in agent.tools],
            system_prompt=agent.instructions,
            middleware=[*before, ours],
            checkpointer=self.saver(ours, folder),
        )

    def saver(self, ours: EventctxMiddleware, folder: Path) -> Any:
        return SaverInFile(folder / "checkpoints")

    async def ask(self, text: str, *, stream: bool = False) -> str:
        given: Any = {"messages": [HumanMessage(text)]}
        if not stream:
            state = await self._agent.ainvoke(given, self._run, durability="sync")
            return str(state["messages"][-1].content)
        pieces: list[AIMessageChunk] = []
        async for piece, _ in self._agent.astream(given, self._run, stream_mode="messages"):
            if isinstance(piece, AIMessageChunk):
                pieces.append(piece)
        assert len(pieces) > 1, "the host did not stream"
        last = [one.content for one in pieces if one.id == pieces[-1].id]
        return "".join(map(str, last))

    def received(self) -> list[list[Any]]:
        return received(self._model)

    def shown(self, row: dict[str, Any]) -> Any:
        return shown(row)


def shown(row: dict[str, Any]) -> Any:
    """What a model is shown of a row."""
    return row["role"], row["content"], row.get("tool_calls") or [], row.get("tool_call_id")


class SavingDriver(LangChainDriver):
    """The same, with our checkpoint saver over the same engine."""

    def saver(self, ours: EventctxMiddleware, folder: Path) -> Any:
        return ours.saver()


class KeepLast(AgentMiddleware):  # type: ignore[type-arg]  # two parameters in 1.2, then three
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        return await handler(request.override(messages=request.messages[-self._number :]))


class ScriptedChat(BaseChatModel):
    """Answers by a script, streamed in two pieces, and keeps what it received."""

    script: list[Any]
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    model: str = "scripted"
    max_tokens: int = 900
    base_url: str = "https://api.example.org/v1"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        return self

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        self.seen.append(list(messages))
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return answer(step)

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> Iterator[ChatGenerationChunk]:
        whole = self._next(messages)
        text = str(whole.content)
        yield ChatGenerationChunk(message=AIMessageChunk(text[:3], id=whole.id))
        chunks = [
            tool_call_chunk(name=one["name"], args=json.dumps(one["args"]), id=one["id"])
            for one in whole.tool_calls
        ]
        last = AIMessageChunk(
            text[3:],
            id=whole.id,
            tool_call_chunks=[one | {"index": place} for place, one in enumerate(chunks)],
            usage_metadata=whole.usage_metadata,
            response_metadata=whole.response_metadata,
            chunk_position="last",
        )
        yield ChatGenerationChunk(message=last)


def answer(reply: Reply) -> AIMessage:
    calls = [
        {"name": one.name, "args": one.arguments, "id": one.id, "type": "tool_call"}
        for one in calls_of(reply)
    ]
    used = reply.usage
    usage: Any = used and {
        "input_tokens": used.prompt,
        "output_tokens": used.output,
        "total_tokens": used.prompt + used.output,
    }
    said = {"id": reply.response_id, "finish_reason": reply.finish_reason}
    known: Any = {name: value for name, value in said.items() if value is not None}
    return AIMessage(reply.text, tool_calls=calls, usage_metadata=usage, response_metadata=known)


def received(model: ScriptedChat) -> list[list[Any]]:
    return [[shown(row_of(one)) for one in request] for request in model.seen]


class SaverInFile(InMemorySaver):
    """Checkpoints that outlive a process that is killed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            storage, writes, blobs = pickle.loads(path.read_bytes())  # noqa: S301 - our own file
            for thread, spaces in storage.items():
                self.storage[thread].update(spaces)
            self.writes.update(writes)
            self.blobs.update(blobs)

    def put(self, *given: Any) -> Any:
        config = super().put(*given)
        storage = {thread: dict(spaces) for thread, spaces in self.storage.items()}
        kept = pickle.dumps((storage, dict(self.writes), dict(self.blobs)))
        beside = self._path.with_suffix(".new")
        beside.write_bytes(kept)
        beside.replace(self._path)
        return config
