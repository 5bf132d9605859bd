"""Wrapped clients without async, and clients and engines of different loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

anthropic = pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
openai = pytest.importorskip("openai", reason="an extra: eventctx[openai]")

import eventctx  # noqa: E402
import eventctx.sync  # noqa: E402
from eventctx.errors import InvalidSetting  # noqa: E402
from tests.api_answers import Body  # noqa: E402
from tests.orchestrators.providers.server import ReceivedRequest, Reply, http  # noqa: E402
from tests.scripted_http import environment, saying, serving  # noqa: E402

ROWS: list[Body] = [{"role": "user", "content": "Compare a.py with b.py."}]
CLAUDE: Body = {"model": "m-1", "max_tokens": 900, "messages": ROWS}
CHAT: Body = {"model": "m-1", "messages": ROWS}
HOOK = "eventctx.adapters.clients.wrapping.wrap"


@pytest.fixture
def engine() -> Iterator[Any]:
    with eventctx.sync.open("memory://") as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """The one server that the SDKs of this module ask."""
    with pytest.MonkeyPatch.context() as patch, serving(saying()) as server:
        for name, value in environment(server.url).items():
            patch.setenv(name, value)
        yield


# Without TLS: to read all known authorities takes longer than a test.
def claude_client() -> Any:
    return anthropic.Anthropic(http_client=anthropic.DefaultHttpxClient(verify=False))


def async_claude_client(**more: Any) -> Any:
    return anthropic.AsyncAnthropic(http_client=http(anthropic), **more)


def openai_client() -> Any:
    return openai.OpenAI(http_client=openai.DefaultHttpxClient(verify=False))


def answers_in(engine: Any, session: str = "s") -> int:
    engine.close_session(session)  # deferred activity is written
    return [one.type for one in engine.records(session)].count("provider:response")


def test_each_thread_has_a_conversation_of_its_own(engine: Any) -> None:
    inner = openai_client()

    def work(name: str) -> None:
        client = eventctx.wrap(inner, engine, name)
        for _ in range(3):
            client.chat.completions.create(**CHAT)

    names = ["a", "b", "c"]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    inner.close()
    assert [answers_in(engine, name) for name in names] == [3, 3, 3]
    assert engine.hooks.stats().dropped == {}


def test_a_client_whose_engine_has_another_loop_that_ended_gets_its_answer() -> None:
    async def opened(url: str) -> tuple[Any, Any]:
        engine = await eventctx.open("memory://")
        inner = async_claude_client(base_url=url)
        client = eventctx.wrap(inner, engine, "s")
        await client.messages.create(**CLAUDE)
        return engine, client

    async def asked(engine: Any, client: Any) -> Any:
        answer = await client.messages.create(**CLAUDE)
        await engine.close()
        return answer

    def once(request: ReceivedRequest) -> Reply:  # a connection belongs to one loop, too
        reply = saying()(request)
        return replace(reply, headers={**reply.headers, "connection": "close"})

    with serving(once) as server:
        engine, client = asyncio.run(opened(server.url))
        assert "Both check a path." in str(asyncio.run(asked(engine, client)))
    assert engine.hooks.stats().errors == {HOOK: 1}


def test_a_store_is_open_as_long_as_the_client(tmp_path: Path) -> None:
    path = tmp_path / "wrapped.db"

    async def asked(session: str) -> None:
        inner = async_claude_client()
        async with eventctx.wrap(inner, path, session) as client:
            await client.messages.create(**CLAUDE)

    with eventctx.wrap(claude_client(), str(path), "blocking") as client:
        client.messages.create(**CLAUDE)
    asyncio.run(asked("with async"))
    asyncio.run(asked("another loop"))
    assert "eventctx-wrap" not in [one.name for one in threading.enumerate()]
    with eventctx.sync.open(path) as engine:
        names = ["blocking", "with async", "another loop"]
        assert [answers_in(engine, name) for name in names] == [1, 1, 1]


@pytest.mark.parametrize("engine", [None, 3, object()])
def test_what_is_no_engine_is_refused(engine: Any) -> None:
    with pytest.raises(InvalidSetting, match="expected an engine, or the path of a store"):
        eventctx.wrap(claude_client(), engine, "s")


async def test_an_engine_outside_of_its_loop_is_refused() -> None:
    inner = async_claude_client()
    async with eventctx.open("memory://") as engine:
        with pytest.raises(InvalidSetting, match=r"found no loop that runs.*eventctx\.sync"):
            await asyncio.to_thread(eventctx.wrap, inner, engine, "s")


def test_a_stream_that_is_collected_in_the_engines_own_thread_is_a_cancelled_call(
    engine: Any,
) -> None:
    with eventctx.wrap(openai_client(), engine, "s") as client:
        create = client.chat.completions.with_streaming_response.create
        with create(**CHAT, stream=True) as answer:
            pieces = [answer.iter_bytes()]
            next(pieces[0])
            engine.on("*", lambda record: pieces.clear())
            engine.session("other").add_message({"role": "user", "content": "Here."})
            assert not pieces
    engine.close_session("s")
    types = [one.type for one in engine.records("s")]
    assert types.count("provider:error") == 1
    assert engine.hooks.stats().errors == {}
