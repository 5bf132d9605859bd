"""Drives agents of Pydantic AI, with a model that follows a script; the log is their storage."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import RetryModelRequest
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    repair_messages,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import RequestUsage

from eventctx.adapters.pydantic_ai import Eventctx
from eventctx.adapters.pydantic_ai.rows import rows_of
from eventctx.engine import Engine
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of

PASSING = ("timestamp", "metadata", "outcome", "is_error")


class Scripted(FunctionModel):
    """A model that is called somewhere."""

    @property
    def base_url(self) -> str:
        return "https://api.example.org/v1"


class PydanticDriver(Driver):
    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._session = agent.session
        self._ours = Eventctx(engine, agent.session, recall=False, **agent.settings)
        self._script = list(agent.script)
        self._seen: list[list[Any]] = []
        self.last = answer(Reply())
        capabilities: list[AbstractCapability[Any]] = []
        if agent.retries:
            capabilities.append(Retries(agent.retries))
        if agent.keep_last is not None:
            capabilities.append(KeepLast(agent.keep_last))
        self._agent = Agent(
            Scripted(self._answer, stream_function=self._stream, settings={"max_tokens": 900}),
            tools=[Tool(one) for one in agent.tools],
            instructions=agent.instructions,
            capabilities=[*capabilities, self._ours, Meter(self)],
        )

    async def ask(self, text: str, *, stream: bool = False) -> str:
        history = repair_messages(await self._ours.history(self._session))
        if not stream:
            return str((await self._agent.run(text, message_history=history)).output)
        async with self._agent.run_stream(text, message_history=history) as run:
            pieces = [piece async for piece in run.stream_text(delta=True, debounce_by=None)]
        assert len(pieces) > 1, "the host did not stream"
        return "".join(pieces)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        rows = [row for one in rows_of(messages) for row in one]
        self._seen.append(self.request(info.instructions, rows))
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return answer(step)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        whole = self._next(messages, info)
        self.last = whole
        return whole

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        whole = self._next(messages, info)
        for place, part in enumerate(whole.parts):
            if isinstance(part, TextPart):
                yield part.content[:3]
                yield part.content[3:]
            elif isinstance(part, ToolCallPart):
                delta = DeltaToolCall(
                    name=part.tool_name,
                    json_args=json.dumps(part.args),
                    tool_call_id=part.tool_call_id,
                )
                yield {place: delta}
        self.last = whole

    def received(self) -> list[list[Any]]:
        return self._seen

    def shown(self, row: dict[str, Any]) -> Any:
        content = row["content"]
        if isinstance(content, str):
            return row["role"], content
        blocks = [{k: v for k, v in one.items() if k not in PASSING} for one in content]
        return row["role"], json.dumps(blocks, sort_keys=True)


class KeepLast(AbstractCapability[Any]):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        request_context.messages = request_context.messages[-self._number :]
        return request_context


class Meter(AbstractCapability[Any]):
    """Reports what the script says, where a stream has no more than its pieces."""

    def __init__(self, driver: PydanticDriver) -> None:
        super().__init__()
        self._driver = driver

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        last = self._driver.last
        return replace(
            response,
            usage=last.usage,
            provider_response_id=last.provider_response_id,
            finish_reason=last.finish_reason,
        )


class Retries(AbstractCapability[Any]):
    """Makes another attempt where one failed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Any) -> Any:
        if not self._left:
            raise error
        self._left -= 1
        raise RetryModelRequest from error


def answer(reply: Reply) -> ModelResponse:
    calls = [ToolCallPart(one.name, one.arguments, one.id) for one in calls_of(reply)]
    used = reply.usage
    usage = RequestUsage(input_tokens=used.prompt, output_tokens=used.output) if used else None
    texts = [TextPart(reply.text)] if reply.text else []
    return ModelResponse(
        [*texts, *calls],
        usage=usage or RequestUsage(),
        provider_response_id=reply.response_id,
        finish_reason="stop" if reply.finish_reason else None,
    )
