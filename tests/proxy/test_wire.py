"""What a relay must not break in HTTP and WebSockets, and who may use its gate."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("h11", reason="an extra: eventctx[record]")
pytest.importorskip("wsproto", reason="an extra: eventctx[record]")

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.importers.load import import_file
from eventctx.proxy import gate
from eventctx.proxy.call_copy import SeenCall
from eventctx.proxy.gate import Gate, owner_of
from eventctx.proxy.program import Upstreams
from eventctx.proxy.relay import Relay
from eventctx.proxy.tapes import Tapes
from tests.api_answers import Said, response
from tests.proxy.recorded import relaying, sent_bodies, to

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
POST = b"POST /anthropic/v1/messages HTTP/1.1\r\nhost: relay\r\n"


@asynccontextmanager
async def listening(handler: Handler, secure: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server whose connections ``handler`` takes."""

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(taken, "127.0.0.1", 0, ssl=secure)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def asking(
    handler: Handler, sent: bytes = POST + b"\r\n", url: str = "", **environment: str
) -> AsyncIterator[tuple[Relay, list[SeenCall], asyncio.StreamReader, asyncio.StreamWriter]]:
    """A relay, the calls that it has seen, and a connection that asks its server.

    ``url`` is the server's if the handler is a proxy, whose port ``environment`` may name.
    """
    seen: list[SeenCall] = []
    async with listening(handler) as port:
        named = {name: value.format(port=port) for name, value in environment.items()}
        servers = {"ANTHROPIC_BASE_URL": url or f"http://127.0.0.1:{port}"}
        async with relaying(servers, seen.append, environment=named) as relay:
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            writer.write(to(relay, sent))
            try:
                yield relay, seen, reader, writer
            finally:
                writer.close()


def server_of(heads: list[bytes], answers: list[bytes]) -> Handler:
    """Answers each request, of which it keeps the head, with the next answer, and then closes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(head)
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            writer.write(answer)

    return handler


async def test_requests_that_come_before_their_answers_are_answered_in_order() -> None:
    heads: list[bytes] = []
    answers = [OK, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nall"]
    sent = (POST + b"content-length: 2\r\n\r\n{}") * 2
    async with asking(server_of(heads, answers), sent) as (_, seen, reader, _):
        for answer in answers:
            assert await reader.readexactly(len(answer)) == answer
    assert [call.answered for call in seen] == [b"ok", b"all"]
    assert len(heads) == 2


async def test_trailers_of_a_chunked_answer_are_passed_on() -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
    answer += b"2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n"
    async with asking(server_of([], [answer, OK])) as (relay, seen, reader, writer):
        assert await reader.readexactly(len(answer)) == answer
        writer.write(to(relay, POST + b"\r\n"))
        assert await reader.readexactly(len(OK)) == OK  # on the same connection
    assert [(call.answered, call.whole) for call in seen] == [(b"ok", True)] * 2


async def test_a_client_that_waits_to_send_its_body_is_told_to_go_on() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(2) == b"{}"
        writer.write(OK)

    sent = POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    async with asking(handler, sent) as (_, seen, reader, writer):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert await reader.readexactly(len(OK)) == OK
    assert [(call.sent, call.answered) for call in seen] == [(b"{}", b"ok")]


async def test_a_server_that_dies_in_an_answer_leaves_what_came() -> None:
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\nhalf of it"
    async with asking(server_of([], [half])) as (_, seen, reader, _):
        assert await reader.read() == half
    assert [(call.answered, call.whole) for call in seen] == [(b"half of it", False)]


async def test_an_answer_that_our_end_cuts_is_seen_as_far_as_it_came() -> None:
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await reader.read()
        ended.set()

    async with asking(handler) as (relay, seen, reader, _):
        await reader.readuntil(b"half\r\n")
        await relay.close()
        assert await reader.read() == b""
        await ended.wait()
    assert [(call.answered, call.whole) for call in seen] == [(b"half", False)]


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    async with listening(server_of([], [])) as port:
        pass
    url = f"http://127.0.0.1:{port}"
    async with asking(server_of([], []), url=url) as (_, seen, reader, _):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"127.0.0.1 cannot be reached" in answer
    assert seen == []


async def test_plain_http_goes_through_the_proxy_that_the_environment_names() -> None:
    heads: list[bytes] = []
    named = {"http_proxy": "http://me:p%40ss@127.0.0.1:{port}"}
    asked = asking(server_of(heads, [OK]), url="http://model.example:8080/base", **named)
    async with asked as (_, _, reader, _):
        assert await reader.readexactly(len(OK)) == OK
    first, *rest = heads[0].split(b"\r\n")
    assert first == b"POST http://model.example:8080/base/v1/messages HTTP/1.1"
    assert b"proxy-authorization: Basic bWU6cEBzcw==" in rest
    assert b"host: model.example:8080" in rest


@pytest.mark.parametrize("without", ["*", "example", "127.0.0.1,model.example", ".model.example"])
async def test_a_server_that_no_proxy_names_is_asked_directly(without: str) -> None:
    heads: list[bytes] = []
    named = {"HTTP_PROXY": "http://127.0.0.1:{port}", "NO_PROXY": without}
    asked = asking(server_of(heads, [OK]), url="http://model.example", **named)
    async with asked as (_, _, reader, _):
        assert (await reader.read()).startswith(b"HTTP/1.1 502 ")  # there is no such server
    assert heads == []


def certificate(folder: Path) -> Path:
    """A key and a certificate of its own for model.example, in one file."""
    x509 = pytest.importorskip("cryptography.x509", reason="an extra: eventctx[sign]")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "model.example")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("model.example"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    own = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(own + made.public_bytes(pem))
    return file


def proxy_to(port: int, asked_for: list[bytes]) -> Handler:
    """A proxy that connects to a port of this machine, whatever it is asked for."""

    async def pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked_for.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pumped(reader, up_writer), pumped(up_reader, writer))
        up_writer.close()
        await up_writer.wait_closed()

    return handler


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"])
async def test_https_tunnels_and_trusts_the_named_authority(tmp_path: Path, variable: str) -> None:
    file = certificate(tmp_path)
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(file)
    tunnels: list[bytes] = []
    named = {"HTTPS_PROXY": "127.0.0.1:{port}", variable: str(file)}
    async with listening(server_of([], [OK]), secure) as port:
        asked = asking(proxy_to(port, tunnels), url="https://model.example", **named)
        async with asked as (_, seen, reader, _):
            assert await reader.readexactly(len(OK)) == OK
    assert tunnels == [b"CONNECT model.example:443 HTTP/1.1"]
    assert [call.host for call in seen] == ["model.example"]


def test_a_proxy_of_another_kind_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidSetting, match="expected an http URL of a proxy"):
        Relay(Upstreams.of({}).choose(), print, {"ALL_PROXY": "socks5://127.0.0.1:1080"})


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


async def test_connections_that_send_nothing_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
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
    pytest.importorskip("websockets", reason="the client and server of these tests")
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
