"""The relay and its tapes, and ``eventctx record``: what a program asks is recorded as it is."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pytest
from click.testing import CliRunner

pytest.importorskip("h11", reason="an extra: eventctx[record]")

import eventctx
from eventctx.cli.main import cli
from eventctx.engine import Engine
from eventctx.proxy.program import addresses, command_of, environment_of
from tests.adapters.conftest import engine as engine
from tests.orchestrators.providers.server import Server, json_reply, serving, streamed
from tests.proxy.recorded import (
    CLAUDE,
    SESSION,
    Body,
    answer,
    recording,
    request,
    said,
    sent_bodies,
    to,
    user,
)
from tests.scripted_apis import answering

zstandard = pytest.importorskip("zstandard", reason="an extra: eventctx[record]")

FIRST = request(user("one"))
SECOND = request(user("one"), said("1"), user("two"))


async def test_a_call_is_passed_on_as_it_is_and_observed(tmp_path: Path, engine: Engine) -> None:
    body = request(user("Good morning."), system="Be brief.")
    async with recording(tmp_path) as made:
        raw = await made.ask({"events": []}, json_reply({}), path="/anthropic/api/event_logging")
        assert raw.startswith(b"HTTP/1.1 200")  # which asks no model, and is not recorded
        raw = await made.ask(body, json_reply(answer("Hello.")))
        assert json.loads(raw.split(b"\r\n")[-4]) == answer("Hello.")
        received = made.server.requests[-1]
        assert (received.path, received.body) == ("/v1/messages?beta=true", body)
        assert received.headers["x-api-key"] == "sk-secret"
        assert received.headers["host"] == made.server.url.removeprefix("http://")
        (summary,) = await made.imported(engine)
    assert (summary.session, summary.calls, summary.observed) == (f"{SESSION}.recorded", 1, 1)
    assert await sent_bodies(engine, summary.session) == [body]
    (tape,) = made.tapes.paths
    assert b"secret" not in tape.read_bytes()
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
    async with recording(tmp_path) as made:
        for body, text, pack, encoding in (
            (FIRST, "1", gzip.compress, "gzip"),
            (SECOND, "2", zstandard.compress, "zstd"),
        ):
            packed = pack(json.dumps(answer(text)).encode())
            await made.ask(body, json_reply(packed, content_encoding=encoding))
        (summary,) = await made.imported(engine)
    assert (summary.calls, summary.observed, summary.turns) == (2, 2, 2)
    assert len(await engine.transcript(summary.session)) == 4


async def test_calls_beside_it_and_agents_have_own_sessions(tmp_path: Path, engine: Engine) -> None:
    title = {"model": "m-small", "max_tokens": 9, "messages": [user("A title, please.")]}
    agent = {**CLAUDE, "x-claude-code-agent-id": "a1"}
    async with recording(tmp_path) as made:
        for body, headers in (
            *((title, CLAUDE), (request(user("Read.")), CLAUDE)),
            (request(user("Find it.")), agent),
        ):
            await made.ask(body, json_reply(answer("Read.")), headers)
        summaries = await made.imported(engine)
    main = f"{SESSION}.recorded"
    names = [main, f"{SESSION}.recorded-2", f"{main}.agent-a1"]
    assert [(one.session, one.calls) for one in summaries] == [(name, 1) for name in names]
    records = [one async for one in engine.store.read(names[2])]
    linked = next(one for one in records if one.type == "session:linked")
    assert main.encode() in linked.payload


async def test_codex_says_what_is_its_conversation(tmp_path: Path, engine: Engine) -> None:
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
        names = [one.session for one in await made.imported(engine)]
    main = f"{SESSION}.recorded"
    assert names == [main, f"{SESSION}.recorded-2", f"{main}.agent-other"]
    assert await sent_bodies(engine, main) == [asked("Is it on?")]


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
    assert await sent_bodies(engine, summary.session) == [body]


async def test_a_tape_grows_and_is_imported_again(tmp_path: Path, engine: Engine) -> None:
    for body, text in ((FIRST, "1"), (SECOND, "2")):
        async with recording(tmp_path) as made:
            await made.ask(body, json_reply(answer(text)))
            (summary,) = await made.imported(engine)
    assert (summary.calls, summary.observed) == (2, 2)
    assert await sent_bodies(engine, summary.session) == [FIRST, SECOND]


async def test_a_tape_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with recording(tmp_path / "file", expected=1) as made:
        for _ in range(2):
            assert b"Hello." in await made.ask(FIRST, json_reply(answer("Hello.")))
        await asyncio.to_thread(made.tapes.close)
    assert made.tapes.lost == 2


def test_a_program_is_told_where_to_ask() -> None:
    given = environment_of("http://127.0.0.1:9", {"NO_PROXY": "corp", "HOME": "/root"})
    assert given.items() >= addresses("http://127.0.0.1:9").items()
    assert given["NO_PROXY"] == "corp,127.0.0.1,localhost"
    assert command_of(["/bin/claude", "-p"], "http://r") == ["/bin/claude", "-p"]
    codex = command_of(["codex", "exec"], "http://r")
    assert (codex[0], codex[-1]) == ("codex", "exec")
    assert 'base_url="http://r/openai"' in codex[2]


PROGRAM = """
import json, os, sys, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": "capital of Switzerland"}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
asked = urllib.request.Request(url, json.dumps(body).encode(), {"authorization": "Bearer secret"})
answer = json.load(urllib.request.urlopen(asked))
open(sys.argv[1], "w").write(answer["choices"][0]["message"]["content"])
sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["made.db", "no-store.txt"])
def test_a_program_gets_its_answer_whatever_the_store_does(tmp_path: Path, store: str) -> None:
    path, tapes, out = tmp_path / store, tmp_path / "tapes", tmp_path / "out.txt"
    if store == "no-store.txt":
        path.write_text("not a store")
    with answering() as environment:
        command = ["record", "--tapes", str(tapes), "--", sys.executable, "-c", PROGRAM, str(out)]
        result = CliRunner(env=environment).invoke(cli, ["--store", str(path), *command])
    assert result.exit_code == 3, result.output
    assert out.read_text() == "Bern."
    (tape,) = tapes.iterdir()
    assert "secret" not in tape.read_text()
    says = {"no-store.txt": "the tapes are kept: ", "made.db": "recorded 1 call: "}
    assert says[store] in result.stderr
    if store == "no-store.txt":
        path.unlink()
        imported = CliRunner().invoke(cli, ["--store", str(path), "import", str(tapes)])
        assert imported.exit_code == 0, imported.output
    listed = CliRunner().invoke(cli, ["--store", str(path), "sessions", "--json"])
    assert ".recorded" in listed.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--serve"),
        (["--serve", "--", "claude"], "--serve"),
        (["--", "no-such-program"], "no-such-program: No such file or directory"),
    ],
)
def test_a_program_or_serve_is_expected(tmp_path: Path, arguments: list[str], says: str) -> None:
    command = ["--store", str(tmp_path / "s.db"), "record", "--tapes", str(tmp_path / "tapes")]
    result = CliRunner().invoke(cli, [*command, *arguments])
    assert (result.exit_code, says in result.stderr) == (2, True)


@pytest.mark.slow
async def test_serve_records_programs_until_it_is_stopped_in_an_answer(tmp_path: Path) -> None:
    """SIGTERM ends it cleanly: what had come of the answer is recorded, too."""
    store = str(tmp_path / "s.db")
    async with serving(Server(lambda _: None)) as server:
        command = [sys.executable, "-m", "eventctx.cli", "--store", store, "record", "--serve"]
        options: Any = dict.fromkeys(("stdout", "stderr"), asyncio.subprocess.PIPE)
        options["env"] = {**os.environ, "ANTHROPIC_BASE_URL": server.url}
        command += ["--tapes", str(tmp_path / "tapes")]
        process: Any = await asyncio.create_subprocess_exec(*command, **options)
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
            assert line.startswith("export ANTHROPIC_BASE_URL=http://127.0.0.1:")
            url = urlsplit(line.strip().partition("=")[2])
            begun = {"type": "message_start", "message": {**answer(""), "content": []}}
            server.replies = [json_reply(answer("Bern.")), streamed([begun], "stalled")]
            first, writer = await sent(url, "one")
            assert b"Bern." in await first.read()
            writer.close()
            second, writer = await sent(url, "two")
            await second.readuntil(b"message_start")
            process.send_signal(signal.SIGTERM)
            _, told = await process.communicate()
            writer.close()
    assert process.returncode == 0, told
    assert told.decode().count("recorded 1 call: ") == 2
    async with eventctx.open(store, read_only=True) as engine:
        assert {one.stream for one in await engine.sessions()} == {"one.recorded", "two.recorded"}


async def sent(url: SplitResult, session: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a program asks its model in a session."""
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    body = json.dumps(request(user("capital of Switzerland"), stream=True)).encode()
    head = [f"POST {url.path}/v1/messages HTTP/1.1", f"host: {url.netloc}", "connection: close"]
    head += [f"x-claude-code-session-id: {session}", f"content-length: {len(body)}"]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    return reader, writer
