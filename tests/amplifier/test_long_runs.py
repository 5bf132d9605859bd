"""Long runs on Amplifier's kernel with our context module: Claude refuses no request."""

from __future__ import annotations

from typing import Any, Final

import pytest

pytest.importorskip("anthropic", reason="extra: eventctx[anthropic]")

from amplifier_core import ProviderInfo
from amplifier_core.message_models import ChatResponse, ToolCall, Usage
from amplifier_core.models import ToolResult

from eventctx.testing.strict_provider import strict_provider
from tests.amplifier.conversations import Gate, Tool, find_real_module
from tests.amplifier.hosts import session
from tests.how_much import some
from tests.long_run import KINDS, PAGE, Model
from tests.orchestrators.providers.server import claude_client

TURNS: Final = some(14, 60)
THINKING: Final[dict[str, dict[str, Any]]] = {
    "claude-haiku-4-5": {"type": "enabled", "budget_tokens": 1_024},
    "claude-sonnet-5-5": {"type": "adaptive"},
}


class Claude:
    """A provider module that sends the rows of a request as Amplifier's own for Claude does."""

    name = "anthropic"

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model

    def get_info(self) -> Any:
        return ProviderInfo(id="a", display_name="a", defaults={"model": self._model})

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])

    async def complete(self, request: Any, **options: Any) -> Any:
        rows = [message.model_dump(exclude_none=True) for message in request.messages]
        named = [{"name": one.name, "input_schema": one.parameters} for one in request.tools or ()]
        answer = await self._client.messages.create(
            model=self._model,
            max_tokens=4_000,
            thinking=THINKING[self._model],  # type: ignore[arg-type]
            tools=named,  # type: ignore[arg-type]
            messages=[sent(row) for row in rows],  # type: ignore[misc]
        )
        calls = [
            ToolCall(id=block.id, name=block.name, arguments=dict(block.input))
            for block in answer.content
            if block.type == "tool_use"
        ]
        used = answer.usage
        total = used.input_tokens + used.output_tokens
        usage = Usage(
            input_tokens=used.input_tokens, output_tokens=used.output_tokens, total_tokens=total
        )
        content: Any = [came(block.model_dump(exclude_none=True)) for block in answer.content]
        return ChatResponse(content=content, tool_calls=calls or None, usage=usage)


def sent(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a message of the Messages API."""
    if row["role"] == "tool":
        kind, call = "tool_result", row["tool_call_id"]
        result = {"type": kind, "tool_use_id": call, "content": row["content"]}
        return {"role": "user", "content": [result]}
    content = row["content"]
    if isinstance(content, list):
        content = [
            {**{key: value for key, value in block.items() if key != "visibility"}, "type": kind}
            for block in content
            for kind in [block["type"].replace("tool_call", "tool_use")]
        ]
    return {"role": row["role"], "content": content}


def came(block: dict[str, Any]) -> dict[str, Any]:
    """A block of an answer as Amplifier has it."""
    return {**block, "type": block["type"].replace("tool_use", "tool_call")}


@pytest.mark.parametrize("model", THINKING)
@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-basic", "loop-streaming"])
async def test_no_request_of_a_long_run_is_refused(
    loop: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop.startswith("loop-"):
        find_real_module(loop, monkeypatch)
    script = Model()
    kinds = [one for one in KINDS.values() if not (one.needs_server_tools or one.stops_after)]

    def fails(given: dict[str, Any]) -> Any:
        raise ValueError("torn")

    tools = [
        Tool("read", lambda given: ToolResult(output=PAGE), Gate()),
        Tool("fail", fails, Gate()),
    ]
    config = {"store": "memory://", "max_tokens": 7_000, "reserve_tokens": 0}
    async with (
        strict_provider(script) as server,
        claude_client(server.url) as client,
        session(Claude(client, model), *tools, loop=loop, config=config) as host,
    ):
        for number in range(TURNS):
            script.begin(kinds[number % len(kinds)], number)
            await host.execute(f"Question {number}: read and tell me. " + "please " * 20)
    assert server.refusals == []
    assert len(server.requests) > 2 * TURNS
    assert any("[Index" in str(one.body) for one in server.requests), "it never compacted"
