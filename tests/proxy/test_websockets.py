"""A WebSocket of the Responses API is passed on, and its calls are read: by a client of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("h11", reason="an extra: eventctx[record]")
pytest.importorskip("wsproto", reason="an extra: eventctx[record]")
websockets = pytest.importorskip("websockets", reason="the client and server of these tests")

import eventctx  # noqa: E402
from eventctx.importers.load import import_file  # noqa: E402
from eventctx.proxy.program import Upstreams  # noqa: E402
from eventctx.proxy.relay import Relay  # noqa: E402
from eventctx.proxy.tapes import Tapes  # noqa: E402
from tests.proxy.recorded import sent_bodies  # noqa: E402

Body = dict[str, Any]


def created(*rows: Body, **more: Any) -> Body:
    return {"type": "response.create", "model": "g", "input": list(rows), "store": False, **more}


def person(text: str) -> Body:
    return {"type": "message", "role": "user", "content": text}


def events(number: int) -> list[Body]:
    """The events of a response that says its number."""
    text = {"type": "output_text", "text": f"answer {number}", "annotations": []}
    item = {"type": "message", "id": f"m{number}", "role": "assistant", "content": [text]}
    response = {"id": f"r{number}", "object": "response", "status": "completed"}
    return [
        {"type": "response.created", "response": {**response, "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "output": [item]}},
    ]


async def model(socket: Any) -> None:
    """Answers each request; fails the one that says so."""
    number = 0
    async for message in socket:
        number += 1
        answer = events(number)
        if "fail" in message:
            answer = [{"type": "error", "status": 400, "error": {"type": "invalid_request"}}]
        for event in answer:
            await socket.send(json.dumps(event))


@asynccontextmanager
async def connected(folder: Path, packed: str | None) -> AsyncIterator[tuple[Any, Relay, Tapes]]:
    """A client's WebSocket to a model, through a relay."""
    from websockets.asyncio.client import connect
    from websockets.asyncio.server import serve

    tapes = Tapes(folder, "run", print)
    async with serve(model, "127.0.0.1", 0, compression=packed) as server, asyncio.timeout(60):
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/v1"
        relay = Relay(Upstreams.of({"OPENAI_BASE_URL": url}).choose(), tapes.put)
        await relay.start()
        to = f"{relay.url.replace('http', 'ws', 1)}/openai/responses"
        headers = {"session-id": "s1", "authorization": "Bearer secret"}
        try:
            async with connect(
                to, compression=packed, additional_headers=headers, proxy=None
            ) as client:
                yield client, relay, tapes
        finally:
            await relay.close()
            await asyncio.to_thread(tapes.close)


async def answered(client: Any, body: Body) -> Body:
    """The event that ends the answer to a request."""
    await client.send(json.dumps(body))
    while True:
        event: Body = json.loads(await client.recv())
        if event["type"] in ("response.completed", "error"):
            return event


@pytest.mark.parametrize("packed", [None, "deflate"])
async def test_the_calls_of_a_websocket_are_observed(tmp_path: Path, packed: str | None) -> None:
    said = events(1)[1]["item"]
    bodies = [
        created(person("one " * 400)),
        created(person("one " * 400), said, person("two")),
        created(person("three"), previous_response_id="r2"),
    ]
    async with connected(tmp_path, packed) as (client, relay, tapes):
        for number, body in enumerate(bodies, 1):
            event = await answered(client, body)
            assert event == events(number)[-1]
    assert relay.unread == 0
    (path,) = tapes.paths
    assert "secret" not in path.read_text()
    async with eventctx.open("memory://") as engine:
        (summary,) = await import_file(engine.store, path)
        assert (summary.session, summary.calls) == ("s1.recorded", 3)
        # The provider has what came before, so a body does not hold it.
        assert await sent_bodies(engine, summary.session, as_view=False) == bodies
        last = await engine.request_view(summary.session, turn=3)
    assert len(last.derived) == 5


async def test_a_call_that_fails_ends_there(tmp_path: Path) -> None:
    async with connected(tmp_path, None) as (client, _, tapes):
        await answered(client, created(person("fail")))
        await answered(client, created(person("again")))
    (path,) = tapes.paths
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [(row["status"], row["whole"]) for row in rows] == [(400, True), (200, True)]


async def test_an_answer_that_is_cut_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    async with connected(tmp_path, None) as (client, relay, tapes):
        await client.send(json.dumps(created(person("one"))))
        await client.recv()
        await relay.close()
    assert tapes.calls == 1


async def test_a_websocket_of_another_kind_is_passed_on_and_counted(tmp_path: Path) -> None:
    async with connected(tmp_path, None) as (client, relay, tapes):
        await client.send(json.dumps({"type": "session.update"}))
        assert json.loads(await client.recv()) == events(1)[0]
    assert (relay.unread, tapes.calls) == (1, 0)
