"""Who gets in: names, origins, tokens and cookies, over raw sockets."""

from __future__ import annotations

import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

import eventctx
from eventctx.errors import NotAStore, StoreUnavailable
from eventctx.web import follow
from eventctx.web import serving as server
from eventctx.web.guard import HEADERS
from tests.web.conftest import Reply, Served

GET = "GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"


def test_the_token_is_changed_for_a_cookie_and_leads_to_a_clean_address(serving, store) -> None:
    served = serving(store, entered=False, session="work")
    reply = served.enter()
    assert (reply.status, reply.headers["location"]) == (303, "/s/work")
    value = reply.headers["set-cookie"]
    assert value.startswith(f"eventctx-{served.port}=")
    assert value.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert len(value.split("=")[1].split(";")[0]) >= 43
    assert len(served.token) >= 43
    assert served.get("/s/work").status == 200


def test_headers_that_come_at_once_are_limited_as_those_that_come_slowly(served) -> None:
    few, many = "".join(f"X-{n}: {'x' * 1000}\r\n" for n in range(20)), f"X: {'x' * 31_900}\r\n"
    assert served.get("/api/about", few.strip()).status == 200
    assert served.get("/api/about", f"{few}{many}".strip()).status in (400, 431)
    assert served.get("/api/about", many.replace("31_900", "") + few.strip()).status in (400, 431)


def test_the_token_works_once_for_a_browser_that_may_come_again(serving, store) -> None:
    served = serving(store)
    reply = served.get(f"/?token={served.token}")
    assert (reply.status, reply.headers["location"]) == (303, "/")
    assert "set-cookie" not in reply.headers
    again = served.enter()
    assert (again.status, b"used already" in again.body) == (403, True)
    assert "set-cookie" not in again.headers


def test_neither_a_wrong_token_nor_a_look_beforehand_uses_the_right_one_up(serving, store) -> None:
    served = serving(store, entered=False)
    for token in ("x" * 43, ""):
        assert served.get(f"/?token={token}").status == 403
    # Whoever reads a body after a HEAD waits for the end of the connection.
    assert served.get(f"/{served.target}", "Connection: close", method="HEAD").status == 403
    for header in ("Sec-Fetch-Site: cross-site", "Sec-Purpose: prefetch",
                   "Sec-Purpose: prefetch;prerender", "Purpose: prefetch"):  # fmt: skip
        assert served.get(f"/{served.target}", header).status == 403
    assert served.enter().status == 303


@pytest.mark.parametrize("target", ["/", "/api/sessions", "/page/parts/text.js", "/s/work"])
def test_nothing_is_sent_without_the_cookie(served, target) -> None:
    other = served.cookie.replace(f"eventctx-{served.port}", f"eventctx-{served.port + 1}")
    for cookie in ("", "Cookie: \r\n", f"Cookie: {other}\r\n", "Cookie: eventctx=\r\n"):
        request = GET.format(target=target, host=served.host, more=cookie)
        assert served.raw(request).status == 403
    short = served.cookie[:-1]
    assert served.get(target, f"Cookie: {short}").status == 403
    assert served.get(target, f"Cookie: a=b; {served.cookie}; c=d").status == 200


def test_the_cookie_of_another_inspector_is_worth_nothing_here(served, serving, store) -> None:
    other = serving(store)
    assert served.get("/api/about", f"Cookie: {other.cookie}").status == 403
    mixed = f"eventctx-{served.port}={other.cookie.partition('=')[2]}"
    assert served.get("/api/about", f"Cookie: {mixed}").status == 403
    assert served.get("/api/about", f"Cookie: {other.cookie}; {served.cookie}").status == 200


WRONG_HOSTS = """
evil.example:{port};127.0.0.1;127.0.0.1:1;localhost;eventctx.localhost:{port};127.0.0.2:{port};
0.0.0.0:{port};[::1];::1:{port};127.0.0.1:{port}@evil.example;evil.example, 127.0.0.1:{port};
2130706433:{port};
"""
HOSTS = ("127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}")


@pytest.mark.parametrize("target", ["/", "/api/sessions"])
def test_only_our_own_names_are_a_host(served, target) -> None:
    cookie = f"Cookie: {served.cookie}\r\n"

    def answered(name: str) -> Reply:
        host = name.strip().format(port=served.port)
        return served.raw(GET.format(target=target, host=host, more=cookie))

    assert [answered(name).status for name in HOSTS] == [200] * 4
    for name in WRONG_HOSTS.split(";"):
        reply = answered(name)
        assert reply.status in (400, 403), name
        assert b"work" not in reply.body, name
    for start in ("1.1", "1.0", f"1.1\r\nHost: {served.host}\r\nHost: evil"):
        assert served.raw(f"GET {target} HTTP/{start}\r\n{cookie}\r\n").status in (400, 403)


ORIGINS = {
    200: ["http://127.0.0.1:{port}"],
    403: [
        *("http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", ""),
        *("http://localhost:{port}", "http://127.0.0.1:{port}.evil.example"),
    ],
}
SITES = {200: ["same-origin", "none"], 403: ["cross-site", "same-site", "SAME-ORIGIN", "other"]}


@pytest.mark.parametrize("status", [200, 403])
def test_only_a_request_of_our_page_or_of_the_person_is_accepted(served, status) -> None:
    headers = [f"Origin: {origin.format(port=served.port)}" for origin in ORIGINS[status]]
    for header in (*headers, *[f"Sec-Fetch-Site: {site}" for site in SITES[status]]):
        assert served.get("/api/sessions", header).status == status, header


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "QUERY"])
def test_only_reading_methods_are_answered(served, method) -> None:
    reply = served.get("/api/sessions", "Content-Length: 0", method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_every_answer_has_the_headers_that_protect_the_page(served) -> None:
    replies = [
        served.get("/"), served.get("/api/sessions"), served.get("/page/parts/text.js"),
        served.get("/nothing"), served.get("/api/s/none/audit"), served.get("/api/s/work/why"),
        served.get("/", "Cookie: none"), served.get("/", method="POST"),
        served.raw(GET.format(target="/", host="evil.example", more="")),
        served.get(f"/?token={served.token}"),
    ]  # fmt: skip
    for reply in replies:
        for name, value in HEADERS:
            assert reply.headers[name.decode()] == value.decode(), reply
    assert {reply.status for reply in replies} == {200, 303, 400, 403, 404, 405}
    policy = replies[0].headers["content-security-policy"]
    assert policy == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types eventctx"
    )
    assert "server" not in replies[0].headers


def test_neither_secret_is_ever_written_down(serving, store, capfd, caplog) -> None:
    caplog.set_level("DEBUG")
    served = serving(store)
    served.get("/api/sessions")
    served.get(f"/?token={served.token}")
    served.get("/?token=wrong", "Cookie: none")
    served.raw(b"nonsense\r\n\r\n")
    served.stop()
    out, err = capfd.readouterr()
    told = out + err + caplog.text
    assert served.token not in told
    assert served.cookie.partition("=")[2] not in told


def test_a_server_that_starts_again_knows_neither_old_cookie_nor_token(serving, store) -> None:
    first = serving(store)
    first.stop()
    second = serving(store, port=first.port)
    assert second.port == first.port
    assert second.get("/api/about", f"Cookie: {first.cookie}").status == 403
    assert second.get(f"/?token={first.token}", "Cookie: none").status == 403
    assert second.get("/api/about").status == 200


def test_it_listens_on_loopback_alone_of_both_kinds(served) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="refused"):
        other.settimeout(5)
        other.connect(("127.0.0.2", served.port))
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        connection = served.connect("::1")
    except OSError:
        pytest.skip("no IPv6 here")
    with connection:
        request = GET.format(target="/api/about", host=f"[::1]:{served.port}", more="")
        connection.sendall(request.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


def test_bound_to_every_address_it_takes_addresses_and_no_names(serving, store) -> None:
    served = serving(store, host="0.0.0.0", entered=False)  # noqa: S104 - what is tested
    cookie = f"127.0.0.1:{served.port}"
    reply = served.raw(GET.format(target=f"/{served.target}", host=cookie, more=""))
    more = f"Cookie: {reply.headers['set-cookie'].partition(';')[0]}\r\n"
    port = served.port
    for host, status in (
        (f"192.0.2.7:{port}", 200), (f"localhost:{port}", 200), (f"[2001:db8::7]:{port}", 200),
        (f"evil.example:{port}", 403), ("192.0.2.7:1", 403), ("192.0.2.7", 403),
    ):  # fmt: skip
        request = GET.format(target="/api/about", host=host, more=more)
        assert served.raw(request).status == status, host


# -- stores that are not well, and clients that mean no good ---------------------------------------


def about(served: Served) -> int:
    return served.get("/api/about").status


@pytest.mark.slow
def test_a_request_that_does_not_come_to_its_end_is_given_up(serving, store, monkeypatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 1.0)
    served = serving(store)
    silent, half, dripping = (served.connect() for _ in range(3))
    half.sendall(f"GET / HTTP/1.1\r\nHost: {served.host}\r\nX-A: ".encode())
    begun = time.monotonic()
    dripping.settimeout(0.25)
    ended = False
    while not ended and time.monotonic() - begun < 60:
        try:
            dripping.sendall(b"G")
            ended = dripping.recv(1) == b""
        except TimeoutError:
            assert about(served) == 200
        except OSError:
            ended = True
    assert ended
    for one in (silent, half):
        with suppress(ConnectionError):
            assert one.recv(1) == b""
        one.close()
    dripping.close()


MANY = b"".join(b"X-%d: b\r\n" % one for one in range(10_000))


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n", id="header"),
        pytest.param(b"GET / HTTP/1.1\r\n" + MANY + b"\r\n", id="headers"),
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", id="target"),
        b"\x00\xff\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET  /  HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_no_request_for_us_is_refused_and_nothing_breaks(served, request_bytes) -> None:
    try:
        reply = served.raw(request_bytes)
    except ConnectionError:
        reply = None  # refused before all of it was read
    assert reply is None or reply.status in (0, 400, 403, 405, 431)
    assert about(served) == 200


def test_a_client_that_leaves_in_the_middle_takes_nothing_along(served) -> None:
    for _ in range(50):
        one = served.connect()
        lines = f"GET /api/s/work/audit HTTP/1.1\r\nHost: {served.host}\r\n"
        one.sendall((lines + f"Cookie: {served.cookie}\r\n\r\n").encode())
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # a reset instead of an end
        one.close()
    assert about(served) == 200


# -- stores --------------------------------------------------------------------------------------


async def test_an_empty_store_has_a_page_and_no_sessions(serving, tmp_path) -> None:
    async with eventctx.open(tmp_path / "empty.db"):
        served = serving(tmp_path / "empty.db")
    assert served.get("/").status == 200
    for question, answer in (("sessions", []), ("lost", {}), ("verify", []), ("search?q=x", [])):
        assert served.get(f"/api/{question}").document == answer


def test_a_missing_store_a_folder_and_another_file_are_told_apart(serving, tmp_path) -> None:
    with pytest.raises(StoreUnavailable, match="nothing there"):
        serving(tmp_path / "none.db")
    with pytest.raises(NotAStore, match="a folder"):
        serving(tmp_path)
    other = tmp_path / "other.db"
    other.write_text("something else " * 100)
    with pytest.raises(NotAStore):
        serving(other)
    assert {one.name for one in tmp_path.iterdir()} == {"other.db"}


@pytest.fixture
async def damaged(store):
    """A store of a sound session ``work`` and one, ``bad``, with a payload that is no JSON."""
    copy = store.with_name("damaged.db")
    shutil.copy(store, copy)
    async with eventctx.open(copy) as engine:
        context = await engine.session("bad")
        async with context.turn():
            await context.add_message({"role": "user", "content": "hello"})
            await context.get_messages_for_request()
    with apsw.Connection(str(copy)) as connection:
        connection.execute(
            "UPDATE records SET payload=X'7B' WHERE stream=(SELECT id FROM streams WHERE "
            "name='bad') AND type=(SELECT id FROM types WHERE name='context:request_prepared')"
        )
    return copy


def test_a_damaged_session_says_so_and_takes_no_other_along(serving, damaged) -> None:
    served = serving(damaged)
    rows = served.get("/api/sessions").document
    assert {row["session"]: row["requests"] for row in rows} == {"work": 12, "bad": 1}
    assert served.get("/api/lost").document == {"work": 0, "bad": 0}
    assert served.get("/api/s/work/timeline").status == 200
    assert served.get("/api/verify").document[1]["ok"] is False
    for question in ("timeline", "digests", "audit", "view?turn=1", "why?number=0"):
        reply = served.get(f"/api/s/bad/{question}")
        assert (reply.status, "bad" in reply.document["error"]) == (409, True), question
    stream = served.open_stream("/api/s/bad/follow?after=-1")
    assert stream.event().name == "trouble" and stream.event() is None
    stream.close()


@pytest.mark.parametrize("harm", ["removed", "moved", "replaced"])
def test_a_store_whose_file_is_gone_is_shown_no_more(serving, store, harm, monkeypatch) -> None:
    monkeypatch.setattr(follow, "PING_SECONDS", 0.1)
    served = serving(store)
    assert served.get("/api/s/work/timeline").status == 200
    assert served.get("/api/s/work/why?number=0").status == 200
    stream = served.open_stream("/api/s/work/follow?after=-1")
    assert stream.event().name == "timeline"
    copy = Path(shutil.copy(store, store.with_name("copy.db")))
    if harm == "removed":
        store.unlink()
    elif harm == "moved":
        store.rename(store.with_name("elsewhere.db"))
    else:
        copy.replace(store)
    for question in ("bodies?at=1.0", "timeline", "why?number=0", "follow?after=0"):
        reply = served.get(f"/api/s/work/{question}")
        assert (reply.status, "start it again" in reply.document["error"]) == (410, True)
    told = stream.event()
    assert (told.name, "start it again" in told.data["error"]) == ("trouble", True)
    assert stream.event() is None
    stream.close()
    assert served.get("/").status == 200
