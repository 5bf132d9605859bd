"""Who may use the gate, and WebSockets through it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("h11", reason="an extra: eventctx[record]")
pytest.importorskip("wsproto", reason="an extra: eventctx[record]")

import eventctx
from eventctx.importers.load import import_file
from eventctx.proxy import gate
from eventctx.proxy.call_copy import SeenCall
from eventctx.proxy.gate import Gate, owner_of
from eventctx.proxy.relay import Relay
from eventctx.proxy.tapes import Tapes
from tests.api_answers import Said, response
from tests.proxy.recorded import relaying, sent_bodies
from tests.proxy.test_wire import OK, listening, server_of

LINUX = Path("/proc/net/tcp").exists()
NOBODY = 65_534
SENT = b"POST %s/anthropic/v1/messages HTTP/1.1\r\nhost: %s\r\ncontent-length: 2\r\n%s\r\n{}"


@asynccontextmanager
async def guarded(gate: Gate | None = None) -> AsyncIterator[tuple[Relay, list[SeenCall]]]:
    """A relay before a server that answers, and the calls that it has passed on."""
    seen: list[SeenCall] = []
    async with listening(server_of([], [OK])) as port:
        servers = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        async with relaying(servers, seen.append, gate=gate) as relay:
            yield relay, seen


async def answer(relay: Relay, sent: bytes) -> bytes:
    """The first line of what the relay answers; nothing if it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write(sent)
    line = await reader.readline()
    writer.close()
    return line


def sent_by(relay: Relay, path: str | None = None, host: str = "", more: bytes = b"") -> bytes:
    url = urlsplit(relay.url)
    given = url.path if path is None else path
    return SENT % (given.encode(), (host or url.netloc).encode(), more)


async def test_the_program_with_the_address_is_answered() -> None:
    async with guarded() as (relay, seen):
        own = [f"127.0.0.1:{relay.port}", f"LocalHost:{relay.port}"]
        for host in own:
            assert b" 200 " in await answer(relay, sent_by(relay, host=host))
        page = b"origin: http://127.0.0.1:%d\r\nsec-fetch-site: none\r\n" % relay.port
        assert b" 200 " in await answer(relay, sent_by(relay, more=page))
    assert [call.path for call in seen] == ["/v1/messages"] * 3


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        # Without the token of this run.
        *(({"path": path}, b" 403 ") for path in ("", "/x", "/" + "x" * 32, "/%F0%9F")),
        # From a page of another origin.
        ({"more": b"origin: http://evil.example\r\n"}, b" 403 "),
        ({"more": b"sec-fetch-site: cross-site\r\n"}, b" 403 "),
        ({"more": b"host: again\r\n"}, b" 400 "),
        # By a name that was pointed at us.
        *(({"host": host}, b" 403 ") for host in ("evil.example", "evil.example:{port}")),
        *(({"host": host}, b" 403 ") for host in ("127.0.0.1", "127.0.0.1:1")),
    ],
)
async def test_a_request_of_others_goes_nowhere(asked: dict[str, Any], refused: bytes) -> None:
    async with guarded() as (relay, seen):
        host = asked.get("host", "").format(port=relay.port)
        assert refused in await answer(relay, sent_by(relay, **{**asked, "host": host}))
    assert seen == []


@pytest.mark.parametrize("step", ["..", "%2e%2E", ".%2e", "%252e%252e", "a/..%5C..", "..%2fadmin"])
async def test_a_path_that_climbs_is_refused(step: str) -> None:
    async with guarded() as (relay, seen):
        for path, status in ((step, b" 400 "), ("a..b/...?q=../", b" 200 ")):
            whole = f"{urlsplit(relay.url).path}/anthropic/{path}"
            assert status in await answer(relay, sent_by(relay, whole))
    assert len(seen) == 1


ASKS = """
import os, socket, sys
os.setuid(int(sys.argv[3]))
s = socket.socket()
s.connect(("127.0.0.1", int(sys.argv[1])))
s.sendall(bytes.fromhex(sys.argv[2]))
try:
    print("got", s.recv(99))
except ConnectionResetError:
    print("got nothing")
"""


@pytest.mark.skipif(not (LINUX and os.getuid() == 0), reason="acts as another account")
async def test_another_account_that_has_the_address_goes_nowhere() -> None:
    async with guarded() as (relay, seen):
        command = [sys.executable, "-c", ASKS, str(relay.port), sent_by(relay).hex()]
        for user in (NOBODY, os.getuid()):
            done = await asyncio.to_thread(
                subprocess.run, [*command, str(user)], capture_output=True
            )
            assert done.stdout.startswith(b"got"), done
            assert (b" 200 " in done.stdout) == (user != NOBODY), done
            assert len(seen) == (user != NOBODY)


@pytest.mark.skipif(not LINUX, reason="no table of sockets")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_the_owner_of_a_socket_is_found_also_of_one_that_speaks_both(family: int) -> None:
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    mapped = "::ffff:" if family == socket.AF_INET6 else ""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family) as client:
        client.connect((f"{mapped}127.0.0.1", server.getsockname()[1]))
        accepted, peer = server.accept()
        with accepted:
            assert owner_of(tables, peer, accepted.getsockname()) == os.getuid()
            client.close()
            assert owner_of(tables, peer, accepted.getsockname()) == -1


def test_the_account_is_read_beside_the_addresses_and_not_guessed(tmp_path: Path) -> None:
    table, rest = tmp_path / "tcp", " 01 0:0 00:0 00000000 {uid} 0 {inode} 1 0 20\n"
    ends = ("127.0.0.1", 0x1F90), ("127.0.0.1", 0x50)
    ours = "0: 0100007F:0050 0100007F:1F90" + rest.format(uid=7, inode=5)
    theirs = f"{ours}1: 0100007F:1F90 0100007F:0050{rest}"
    for shown, owner in (
        (theirs.format(uid=1000, inode=9), 1000),
        (theirs.format(uid=0, inode=0), -1),  # sent and closed: it is shown as root's
        (ours, -1),
        ("nothing of ours\n", None),
    ):
        table.write_text(shown)
        assert owner_of([table, tmp_path / "none"], *ends) == owner


async def test_connections_that_send_no_request_are_few_and_do_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "MOST_WAITING", 2)
    for most, seconds in ((1, 60), (3, 0.2)):
        async with guarded(Gate(seconds=seconds)) as (relay, _):
            halves = [await asyncio.open_connection("127.0.0.1", relay.port) for _ in range(3)]
            for _, writer in halves:
                writer.write(b"POST /half")
            ended = {asyncio.create_task(reader.read()) for reader, _ in halves}
            ending = asyncio.FIRST_COMPLETED if most == 1 else asyncio.ALL_COMPLETED
            done, _ = await asyncio.wait(ended, return_when=ending)
            assert [one.result() for one in done] == [b""] * most
            for _, writer in halves:
                writer.close()
            await asyncio.gather(*ended)
            assert b" 200 " in await answer(relay, sent_by(relay))


# -- WebSockets ------------------------------------------------------------------------------------

websockets = pytest.importorskip("websockets", reason="the client and server of these tests")


Body = dict[str, Any]


def created(*rows: Body, **more: Any) -> Body:
    return {"type": "response.create", "model": "g", "input": list(rows), "store": False, **more}


def person(text: str) -> Body:
    return {"type": "message", "role": "user", "content": text}


def events(number: int) -> list[Body]:
    """The events of a response that says its number."""
    return response(number, "g", Said(f"answer {number}"))[1]


async def model(socket: Any) -> None:
    """Answers each request; fails the one that says so."""
    failed = [{"type": "error", "status": 400, "error": {"type": "invalid_request"}}]
    numbers = itertools.count(1)
    async for message in socket:
        for event in failed if "fail" in message else events(next(numbers)):
            await socket.send(json.dumps(event))


@asynccontextmanager
async def connected(folder: Path, packed: str | None) -> AsyncIterator[tuple[Any, Relay, Tapes]]:
    """A client's WebSocket to a model, through a relay."""
    from websockets.asyncio.client import connect
    from websockets.asyncio.server import serve

    tapes = Tapes(folder, "run", print)
    given: Any = {"compression": packed, "proxy": None}
    given["additional_headers"] = {"session-id": "s1", "authorization": "Bearer secret"}
    async with serve(model, "127.0.0.1", 0, compression=packed) as server:
        servers = {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"}
        async with relaying(servers, tapes.put) as relay:
            to = f"{relay.url.replace('http', 'ws', 1)}/openai/responses"
            async with connect(to, **given) as client:
                yield client, relay, tapes
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
    (said,) = events(1)[-1]["response"]["output"]
    one = person("one " * 400)
    bodies = [created(one), created(one, said, person("two"))]
    bodies.append(created(person("three"), previous_response_id="resp_2"))
    async with connected(tmp_path, packed) as (client, relay, tapes):
        for number, body in enumerate(bodies, 1):
            assert await answered(client, body) == events(number)[-1]
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


async def test_a_call_that_fails_ends_there_and_one_that_is_cut_is_recorded(tmp_path: Path) -> None:
    async with connected(tmp_path, None) as (client, relay, tapes):
        await answered(client, created(person("fail")))
        await answered(client, created(person("again")))
        await client.send(json.dumps(created(person("one"))))
        await client.recv()
        await relay.close()
    (path,) = tapes.paths
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [(row["status"], row["whole"]) for row in rows[:2]] == [(400, True), (200, True)]
    assert len(rows) == 3


async def test_a_websocket_of_another_kind_is_passed_on_and_counted(tmp_path: Path) -> None:
    async with connected(tmp_path, None) as (client, relay, tapes):
        await client.send(json.dumps({"type": "session.update"}))
        assert json.loads(await client.recv()) == events(1)[0]
    assert (relay.unread, tapes.calls) == (1, 0)
