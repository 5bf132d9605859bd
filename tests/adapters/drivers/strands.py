"""Drives agents of Strands, with a model that follows a script and Strands' sessions in files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from strands import Agent, ModelRetryStrategy, tool
from strands.agent import NullConversationManager
from strands.middleware import InvokeModelStage
from strands.models import BedrockModel
from strands.session import FileSessionManager

from eventctx.adapters.strands import EventctxAgentPlugin
from eventctx.adapters.strands.rows import message_of, row_of, sendable
from eventctx.engine import Engine
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of
from tests.adapters.logs import views


class StrandsDriver(Driver):
    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._model = Scripted(list(agent.script))
        self._ours = EventctxAgentPlugin(engine, agent.session, **agent.settings)
        self._agent = Agent(
            name="agent",
            model=self._model,
            system_prompt=agent.instructions,
            tools=[tool(one) for one in agent.tools],
            conversation_manager=NullConversationManager(),
            session_manager=FileSessionManager(agent.session, storage_dir=str(folder / "sessions")),
            retry_strategy=Unplugged(max_attempts=agent.retries + 1, initial_delay=0, max_delay=0),
            callback_handler=None,
            plugins=[self._ours],
        )
        if agent.keep_last is not None:
            number = agent.keep_last
            self._agent.add_middleware(
                InvokeModelStage.Input,
                lambda context: context.replace(messages=context.messages[-number:]),
            )

    async def ask(self, text: str, *, stream: bool = False) -> str:
        if not stream:
            return str(await self._agent.invoke_async(text)).removesuffix("\n")
        pieces: list[str] = []
        result: Any = None
        async for event in self._agent.stream_async(text):
            pieces += [event["data"]] if "data" in event else []
            result = event.get("result", result)
        said = str(result).removesuffix("\n")
        assert len(pieces) > 1, "the host did not stream"
        return said

    def received(self) -> list[list[Any]]:
        seen = self._model.seen
        return [self.request(system, map(row_of, sent)) for system, sent, _ in seen]

    def shown(self, row: dict[str, Any]) -> Any:
        return shown(row)

    def shown_view(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        return shown_view(rows)

    async def close(self) -> None:
        self._ours.close()


def shown(row: dict[str, Any]) -> Any:
    """What a model is shown of a row."""
    if row["role"] == "system":
        return "system", row["content"]
    native = message_of(row)
    return native["role"], json.dumps(native["content"], sort_keys=True)


def shown_view(rows: Sequence[dict[str, Any]]) -> list[Any]:
    system = [row for row in rows if row["role"] == "system"]
    said = [message_of(row) for row in rows if row["role"] != "system"]
    return [shown(row) for row in [*system, *map(row_of, sendable(said))]]


class Unplugged(ModelRetryStrategy):  # type: ignore[misc]
    """Tries again where the connection broke."""

    def is_retryable(self, exception: Exception) -> bool:
        return isinstance(exception, ConnectionError)


class Scripted(BedrockModel):  # type: ignore[misc]
    """One of Strands' own models, whose answers are a script's, streamed in two pieces."""

    def __init__(self, script: list[Any], model_id: str = "scripted") -> None:
        self.script = script
        self.config = {"model_id": model_id, "max_tokens": 900}
        self.client = SimpleNamespace(meta=SimpleNamespace(endpoint_url="https://api.example.org"))
        self.seen: list[tuple[str | None, list[dict[str, Any]], list[str]]] = []

    def update_config(self, **named: Any) -> None:
        self.config.update(named)

    def get_config(self) -> dict[str, Any]:
        return self.config

    def structured_output(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self,
        messages: list[dict[str, Any]],
        tool_specs: list[dict[str, Any]] | None = None,
        system_prompt: str | None = None,
        **named: Any,
    ) -> AsyncIterator[Any]:
        offered = [one["name"] for one in tool_specs or ()]
        self.seen.append((system_prompt, deepcopy(messages), offered))
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        for event in events_of(step):
            yield event


def events_of(reply: Reply) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]

    def block(start: dict[str, Any], *deltas: dict[str, Any]) -> None:
        made.append({"contentBlockStart": {"start": start}})
        made.extend({"contentBlockDelta": {"delta": one}} for one in deltas)
        made.append({"contentBlockStop": {}})

    if reply.thinking:
        thought = ({"text": reply.thinking}, {"signature": reply.signature})
        block({}, *[{"reasoningContent": one} for one in thought])
    if reply.text:
        block({}, {"text": reply.text[:1]}, {"text": reply.text[1:]})
    calls = calls_of(reply)
    for one in calls:
        begun = {"toolUse": {"name": one.name, "toolUseId": one.id}}
        block(begun, {"toolUse": {"input": json.dumps(one.arguments)}})
    made.append({"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}})
    if reply.usage is not None:
        prompt, output = reply.usage.prompt, reply.usage.output
        used = {"inputTokens": prompt, "outputTokens": output, "totalTokens": prompt + output}
        made.append({"metadata": {"usage": used, "metrics": {"latencyMs": 0}}})
    return made


def agent(plugin: EventctxAgentPlugin, *script: Any, **named: Any) -> Agent:
    model = named.pop("model", None) or Scripted(list(script))
    plugins = [*named.pop("before", []), plugin]
    watch, seam = named.pop("watch", None), named.pop("seam", None)
    made = Agent(model=model, plugins=plugins, callback_handler=None, **{"name": "lead", **named})
    if watch is not None:
        made.add_hook(watch, seam)
    return made


def calls(name: str, call_id: str = "call_1", **arguments: Any) -> Reply:
    return Reply(calls=[ToolRequest(call_id, name, arguments)])


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    if place == "nowhere":
        raise LookupError("no such place")
    return f"seen {place}"


async def check_requests(engine: Engine, session: str, model: Scripted) -> None:
    """Each request that the model received is the verified view."""
    shown_in = await views(engine, session)
    bare = [[row for row in one if row["role"] != "system"] for one in shown_in]
    received = [[shown(row_of(one)) for one in sent] for _, sent, _ in model.seen]
    assert [shown_view(one) for one in bare] == received
