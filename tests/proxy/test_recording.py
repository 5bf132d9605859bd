"""The relay and its tapes: a real SDK asks a scripted server through them."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("h11", reason="an extra: eventctx[record]")
zstandard = pytest.importorskip("zstandard", reason="an extra: eventctx[record]")

import eventctx  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.proxy.program import Upstreams, addresses, command_of, environment_of  # noqa: E402
from eventctx.proxy.relay import Relay  # noqa: E402
from eventctx.proxy.tapes import Tapes  # noqa: E402
from tests.orchestrators.providers.server import (  # noqa: E402
    Server,
    json_reply,
    serving,
    streamed,
)
from tests.proxy.recorded import (  # noqa: E402
    CLAUDE,
    SESSION,
    Body,
    Recording,
    answer,
    contents,
    recording,
    request,
    said,
    to,
    user,
)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


async def test_a_call_is_passed_on_as_it_is_and_becomes_an_observed_request(
    tmp_path: Path, engine: Engine
) -> None:
    body = request(user("Good morning."), system="Be brief.")
    async with recording(tmp_path) as made:
        raw = await made.ask(body, json_reply(answer("Hello.")))
        assert json.loads(raw.split(b"\r\n")[-4]) == answer("Hello.")
        received = made.server.requests[0]
        assert received.path == "/v1/messages?beta=true"
        assert received.body == body
        assert received.headers["x-api-key"] == "sk-secret"
        assert received.headers["host"] == made.server.url.removeprefix("http://")
        (summary,) = await made.imported(engine)
    assert (summary.session, summary.calls, summary.observed) == (f"{SESSION}.recorded", 1, 1)
    view = await engine.request_view(summary.session, turn=1)
    assert (view.known, view.verified) == ("observed", True)
    assert view.sent is not None
    assert view.sent.body() == body
    (tape,) = made.tapes.paths
    assert b"secret" not in contents(tape)
    assert tape.stat().st_mode & 0o077 == 0


async def test_the_pieces_of_a_stream_arrive_one_by_one(tmp_path: Path) -> None:
    begun = {"type": "message_start", "message": {**answer(""), "content": []}}
    async with recording(tmp_path) as made:
        made.server.replies.append(streamed([begun], "stalled"))
        reader, writer = await asyncio.open_connection("127.0.0.1", made.relay.port)
        content = json.dumps(request(user("Hi."), stream=True)).encode()
        head = b"POST /anthropic/v1/messages HTTP/1.1\r\nhost: relay\r\n"
        head += b"content-length: %d\r\n\r\n" % len(content)
        writer.write(to(made.relay, head) + content)
        async with asyncio.timeout(60):
            await reader.readuntil(b"message_start")  # the server sends nothing after it
            writer.close()
            await made.server.closed.wait()  # and hears that the program has gone
        await asyncio.to_thread(made.tapes.close)


async def test_packed_bodies_are_read(tmp_path: Path, engine: Engine) -> None:
    first, second = request(user("one")), request(user("one"), said("1"), user("two"))
    async with recording(tmp_path) as made:
        packed = gzip.compress(json.dumps(answer("1")).encode())
        await made.ask(first, json_reply(packed, content_encoding="gzip"))
        packed = zstandard.compress(json.dumps(answer("2")).encode())
        reply = json_reply(packed, content_encoding="zstd")
        await made.ask(second, reply)
        (summary,) = await made.imported(engine)
    assert (summary.calls, summary.observed, summary.turns) == (2, 2, 2)
    rows = [one async for one in engine.store.read(summary.session)]
    assert sum(one.type == "context:message_added" for one in rows) == 4


async def test_a_call_beside_the_conversation_is_a_session_of_its_own(
    tmp_path: Path, engine: Engine
) -> None:
    async with recording(tmp_path) as made:
        title = {"model": "m-small", "max_tokens": 9, "messages": [user("A title, please.")]}
        await made.ask(title, json_reply(answer("Reading")))
        await made.ask(request(user("Read.")), json_reply(answer("Read.")))
        main, beside = await made.imported(engine)
    assert (main.session, beside.session) == (f"{SESSION}.recorded", f"{SESSION}.recorded-2")
    assert (main.calls, beside.calls) == (1, 1)


async def test_codex_says_which_calls_are_its_conversation_and_which_thread_is_an_agent(
    tmp_path: Path, engine: Engine
) -> None:
    def codex(kind: str, thread: str = SESSION) -> dict[str, str]:
        turn = json.dumps({"turn_id": "t", "request_kind": kind})
        return {"session-id": SESSION, "thread-id": thread, "x-codex-turn-metadata": turn}

    def asked(text: str) -> Body:
        return {"model": "g", "input": [{"role": "user", "content": text}]}

    said_so = {"type": "message", "role": "assistant", "content": "Yes."}
    reply = {"id": "r", "object": "response", "status": "completed", "output": [said_so]}
    path = "/openai/responses"
    async with recording(tmp_path) as made:
        await made.ask(asked("A title?"), json_reply(reply), codex("title"), path)
        await made.ask(asked("Is it on?"), json_reply(reply), codex("turn"), path)
        await made.ask(asked("Find it."), json_reply(reply), codex("turn", "other"), path)
        main, beside, agent = await made.imported(engine)
    assert main.session == f"{SESSION}.recorded"
    assert beside.session == f"{SESSION}.recorded-2"
    assert agent.session == f"{SESSION}.recorded.agent-other"
    view = await engine.request_view(main.session, turn=1)
    assert list(view.messages) == asked("Is it on?")["input"]


CHOICE = {"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "text"}
RESPONSES = [{"role": "user", "content": "Hi."}, CALL, RESULT]
WITH_A_FIELD = {**user("Hi."), "output_config": {"effort": "low"}}


@pytest.mark.parametrize(
    ("path", "body", "reply"),
    [
        (
            "/openai/chat/completions",
            {"model": "g", "messages": [{"role": "user", "content": "Hi.", "name": "x"}], "n": 1},
            {"id": "c", "choices": [CHOICE]},
        ),
        (
            "/openai/responses",
            {"model": "g", "instructions": "Be brief.", "input": RESPONSES, "store": False},
            {"id": "r", "object": "response", "status": "completed", "output": [CALL]},
        ),
        ("/anthropic/v1/messages", request(WITH_A_FIELD), answer("Hello.")),
    ],
)
async def test_a_request_of_every_api_is_observed_with_all_its_fields(
    tmp_path: Path, engine: Engine, path: str, body: Body, reply: Body
) -> None:
    async with recording(tmp_path) as made:
        await made.ask(body, json_reply(reply), {"accept": "*/*"}, path)
        (summary,) = await made.imported(engine)
    assert summary.session == "run.recorded"  # the program names no session
    view = await engine.request_view(summary.session, turn=1)
    assert (view.known, view.verified) == ("observed", True)
    assert view.sent is not None
    assert view.sent.body() == body


async def test_a_tape_grows_and_is_imported_again(tmp_path: Path, engine: Engine) -> None:
    first, second = request(user("one")), request(user("one"), said("1"), user("two"))
    async with recording(tmp_path) as made:
        await made.ask(first, json_reply(answer("1")))
        await made.imported(engine)
    async with recording(tmp_path) as made:
        await made.ask(second, json_reply(answer("2")))
        (summary,) = await made.imported(engine)
    assert (summary.calls, summary.observed) == (2, 2)
    view = await engine.request_view(summary.session, turn=2)
    assert view.sent is not None
    assert view.sent.body() == second


async def test_what_asks_no_model_is_passed_on_and_not_recorded(tmp_path: Path) -> None:
    async with recording(tmp_path) as made:
        raw = await made.ask({"events": []}, json_reply({}), path="/anthropic/api/event_logging")
        assert raw.startswith(b"HTTP/1.1 200")
        await asyncio.to_thread(made.tapes.close)
        assert made.tapes.paths == {}


async def test_a_tape_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problems: list[str] = []
    async with serving(Server(lambda _: None)) as server:
        tapes = Tapes(tmp_path / "file", "run", problems.append)
        relay = Relay(Upstreams.of({"ANTHROPIC_BASE_URL": server.url}).choose(), tapes.put)
        await relay.start()
        made = Recording(server, relay, tapes)
        for _ in range(2):
            raw = await made.ask(request(user("Hi.")), json_reply(answer("Hello.")))
            assert b"Hello." in raw
        await relay.close()
        await asyncio.to_thread(tapes.close)
    assert (tapes.lost, len(problems)) == (2, 1)


def test_a_program_is_told_where_to_ask() -> None:
    given = environment_of("http://127.0.0.1:9", {"NO_PROXY": "corp", "HOME": "/root"})
    assert given.items() >= addresses("http://127.0.0.1:9").items()
    assert given["NO_PROXY"] == "corp,127.0.0.1,localhost"
    assert command_of(["/bin/claude", "-p"], "http://r") == ["/bin/claude", "-p"]
    codex = command_of(["codex", "exec"], "http://r")
    assert codex[0] == "codex"
    assert codex[-1] == "exec"
    assert 'base_url="http://r/openai"' in codex[2]


async def test_an_agent_has_a_session_that_is_linked(tmp_path: Path, engine: Engine) -> None:
    agent = {**CLAUDE, "x-claude-code-agent-id": "a1"}
    async with recording(tmp_path) as made:
        await made.ask(request(user("Find it.")), json_reply(answer("Found.")), agent)
        (summary,) = await made.imported(engine)
    assert summary.session == f"{SESSION}.recorded.agent-a1"
    records = [one async for one in engine.store.read(summary.session)]
    linked = next(one for one in records if one.type == "session:linked")
    assert f"{SESSION}.recorded".encode() in linked.payload
