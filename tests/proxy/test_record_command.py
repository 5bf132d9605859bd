"""``eventctx record``: a program runs, and its calls are sessions of the store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import pytest
from click.testing import CliRunner

pytest.importorskip("h11", reason="an extra: eventctx[record]")

import eventctx
from eventctx.cli.main import cli
from tests.orchestrators.providers.server import Server, json_reply, serving, streamed
from tests.proxy.recorded import answer, request, user
from tests.scripted_apis import answering

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
def test_a_program_gets_its_answer_and_its_exit_code_whatever_the_store_does(
    tmp_path: Path, store: str
) -> None:
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
    if store == "no-store.txt":
        assert "the tapes are kept: " in result.stderr
        path.unlink()
        imported = CliRunner().invoke(cli, ["--store", str(path), "import", str(tapes)])
        assert imported.exit_code == 0, imported.output
    else:
        assert "recorded 1 call: " in result.stderr
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
def test_a_program_that_is_there_or_serve_is_expected(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    command = ["--store", str(tmp_path / "s.db"), "record", "--tapes", str(tmp_path / "tapes")]
    result = CliRunner().invoke(cli, [*command, *arguments])
    assert (result.exit_code, says in result.stderr) == (2, True)


@pytest.mark.slow
async def test_serve_records_several_programs_until_it_is_stopped_in_an_answer(
    tmp_path: Path,
) -> None:
    """SIGTERM ends it cleanly: what had come of the answer is recorded, too."""
    store = str(tmp_path / "s.db")
    async with serving(Server(lambda _: None)) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "eventctx.cli", "--store", store),
            *("record", "--serve", "--tapes", str(tmp_path / "tapes")),
            env={**os.environ, "ANTHROPIC_BASE_URL": server.url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            assert process.stdout is not None
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
