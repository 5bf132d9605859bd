"""Clients that mean no good, and stores that are not well: the server stands, and says so."""

from __future__ import annotations

import asyncio
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
from tests.web.conftest import Served


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
def damaged(store):
    """A store of a sound session ``work`` and one, ``bad``, with a payload that is no JSON."""
    copy = store.with_name("damaged.db")
    shutil.copy(store, copy)

    async def made() -> None:
        async with eventctx.open(copy) as engine:
            context = await engine.session("bad")
            async with context.turn():
                await context.add_message({"role": "user", "content": "hello"})
                await context.get_messages_for_request()

    asyncio.run(made())
    with apsw.Connection(str(copy)) as connection:
        connection.execute(
            "UPDATE records SET payload=X'7B' WHERE stream=(SELECT id FROM streams WHERE "
            "name='bad') AND type=(SELECT id FROM types WHERE name='context:request_prepared')"
        )
    return copy


def test_a_damaged_session_is_answered_with_its_damage_and_takes_no_other_along(
    serving, damaged
) -> None:
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
    assert stream.event().name == "trouble"
    assert stream.event() is None
    stream.close()


@pytest.mark.parametrize("harm", ["removed", "moved", "replaced"])
def test_a_store_whose_file_is_gone_is_not_shown_any_more(
    serving, store, harm, monkeypatch
) -> None:
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
