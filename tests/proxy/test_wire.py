"""What a relay must not break: every way in which HTTP/1.1 says where a message ends."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("h11", reason="an extra: eventctx[record]")

from eventctx.errors import InvalidSetting
from eventctx.proxy.call_copy import SeenCall
from eventctx.proxy.program import Upstreams
from eventctx.proxy.relay import Relay
from tests.proxy.recorded import relaying, to

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
