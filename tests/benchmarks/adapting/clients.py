"""Runs of a loop on Anthropic's SDK, plain and wrapped; the server is a function."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import eventctx
from eventctx.adapters.clients.transport import Leaving, recording_client
from eventctx.engine import Engine
from tests.benchmarks.adapting.runs import ROUNDS, TEXT, Pair, RunOnce

Body = dict[str, Any]

TOOLS = [
    {
        "name": "read",
        "description": "Read a page.",
        "input_schema": {"type": "object", "properties": {"page": {"type": "integer"}}},
    }
]


class Nobody:
    """Hears of the calls, and does nothing."""

    async def begin(self, request: Leaving) -> None: ...
    async def ended(self, *call: Any) -> None: ...
    def left(self, *call: Any) -> None: ...
    def close(self) -> None: ...


def observed() -> Pair:
    return _pair({})


def prepared() -> Pair:
    return _pair({"compact": True, "max_tokens": 10**7})


def _pair(settings: Body) -> Pair:
    import anthropic
    import httpx2

    def client() -> Any:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(_server(httpx2.Response)))
        return anthropic.AsyncAnthropic(api_key="k", http_client=http)

    def empty() -> RunOnce:
        inner = client()
        return partial(_run, inner.copy(http_client=recording_client(inner._client, Nobody())))

    async def ours(engine: Engine, name: str) -> RunOnce:
        return partial(_run, eventctx.wrap(client(), engine, name, **settings))

    return Pair(lambda: partial(_run, client()), empty, ours)


def _server(response: Any) -> Callable[[Any], Any]:
    """Calls the tool in each round, and says a text at the end."""
    said = {"type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 100, "output_tokens": 10}

    def answer(request: Any) -> Any:
        page = (len(json.loads(request.content)["messages"]) - 1) // 2
        block: Body = {"type": "text", "text": "All read."}
        if page < ROUNDS:
            given = {"page": page}
            block = {"type": "tool_use", "id": f"call_{page}", "name": "read", "input": given}
        stop = "tool_use" if page < ROUNDS else "end_turn"
        body = {**said, "id": f"m_{page}", "content": [block], "stop_reason": stop, "usage": usage}
        return response(200, json=body)

    return answer


async def _run(client: Any) -> None:
    rows: list[Body] = [{"role": "user", "content": "Read all."}]
    while True:
        message = await client.messages.create(
            model="m", max_tokens=900, system="Be brief.", tools=TOOLS, messages=rows
        )
        rows.append({"role": "assistant", "content": [one.to_dict() for one in message.content]})
        calls = [one for one in message.content if one.type == "tool_use"]
        if not calls:
            return
        content = [
            {
                "type": "tool_result",
                "tool_use_id": one.id,
                "content": f"page {one.input['page']}: {TEXT}",
            }
            for one in calls
        ]
        rows.append({"role": "user", "content": content})
