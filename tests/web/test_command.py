"""``eventctx inspect`` as a program, and the streams with which a page follows a session."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventctx.web.follow import MOST_STREAMS
from eventctx.web.page_files import page_files
from tests.children import started
from tests.cli.conftest import Run

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "eventctx.cli"]


@contextmanager
def inspecting(*arguments: object) -> Iterator[tuple[subprocess.Popen[Any], str]]:
    """The running program, and the address that it printed."""
    command = [*PROGRAM, "inspect", *arguments]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first, address = child.stdout.readline(), child.stdout.readline().strip()
        assert "read-only; Ctrl-C ends it" in first, child.stderr.read() if child.stderr else ""
        yield child, address


@contextmanager
def asked(address: str, target: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)) as connection:
        connection.request("GET", target, headers=headers)
        with connection.getresponse() as reply:
            yield reply


def entered(address: str) -> tuple[dict[str, str], str | None]:
    """The headers of a browser that opened the printed address, and where that led it."""
    place = urlsplit(address)
    with asked(address, f"{place.path}?{place.query}") as reply:
        assert reply.status == 303
        cookie = {"Cookie": reply.headers["set-cookie"].partition(";")[0]}
        return cookie, reply.headers["location"]


def test_it_prints_an_address_serves_the_page_and_writes_nothing(store: Path) -> None:
    before = hashlib.sha256(store.read_bytes()).digest()
    with inspecting("--store", store) as (child, address):
        assert address.startswith("http://127.0.0.1:")
        cookie, _ = entered(address)
        for target, part in (
            *(("/", b"<!doctype html>"), ("/api/sessions", b'"work"'), ("/page/main.js", b"")),
            *(("/api/search?q=task", b""), ("/api/s/work/timeline", b""), ("/api/verify", b"")),
            *(("/api/stats", b""), ("/api/s/work/lost", b"")),
        ):
            with asked(address, target, **cookie) as reply:
                assert (reply.status, part in reply.read().lower()) == (200, True)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        assert (child.returncode, out, err) == (0, "", "")
    assert hashlib.sha256(store.read_bytes()).digest() == before
    beside = {one.name for one in store.parent.iterdir()} - {store.name}
    assert beside <= {f"{store.name}-wal", f"{store.name}-shm"}


def test_a_session_is_found_by_its_beginning_and_ends_while_followed(store: Path) -> None:
    with inspecting("wo", "--store", store) as (child, address):
        cookie, location = entered(address)
        assert location == "/s/work"
        with asked(address, "/api/s/work/follow?after=0", **cookie) as stream:
            assert stream.readline().startswith(b"retry:")
            child.send_signal(signal.SIGTERM)
            assert stream.read().endswith(b"\n")  # the end that a whole answer has
        assert (*child.communicate(timeout=60), child.returncode) == ("", "", 0)


def test_a_port_is_kept_when_it_is_named_and_refused_when_it_is_taken(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*PROGRAM, "inspect", "--port", str(port), "--store", str(store)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"cannot listen at 127.0.0.1, port {port}" in done.stderr
    with inspecting("--port", port, "--store", store) as (_, address):
        assert urlsplit(address).port == port


def test_another_address_is_served_with_a_warning(store: Path) -> None:
    with inspecting("--host", "0.0.0.0", "--store", store) as (child, address):  # noqa: S104
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert "can be reached from other machines" in err
    assert urlsplit(address).hostname == "0.0.0.0"  # noqa: S104


def test_without_the_extra_it_says_what_to_install(store: Path) -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from eventctx.cli.main import main\n"
        f"main(['inspect', '--store', {str(store)!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "eventctx: inspect: expected the packages starlette and uvicorn; install them with: pip "
        "install 'eventctx[web]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--store", "{folder}/none.db"), 3, "there is no store at"),
        (("--store", "{folder}"), 3, "a folder"),
        (("nobody", "--store", "{store}"), 2, "no session 'nobody'"),
        (("--port", "70000", "--store", "{store}"), 2, "70000"),
        (("--host", "nowhere.invalid", "--store", "{store}"), 2, "cannot listen at"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(
    run: Run, store: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    given = [one.format(folder=store.parent, store=store) for one in arguments]
    run("inspect", *given).fails(words, code=code)


def test_the_page_is_few_files_that_name_no_others() -> None:
    found = page_files()
    index = found["index.html"].data.decode()
    linked = set(re.findall(r'(?:src|href)="/page/([^"]*)"', index))
    assert set(found) == {*linked, "index.html", "worker.js"}
    assert linked == {"main.js", "theme.js", "page.css", "icon.svg"}
    for name, file in found.items():
        assert not re.search(rb"^import |@import|url\(", file.data, re.MULTILINE), name
    assert found["page.css"].data.index(b":root") < found["page.css"].data.index(b"ctx-drawer")


# -- a session that another process writes grows on the page ---------------------------------------


WRITER = """
import asyncio, json, sys, time
import eventctx

async def main():
    async with eventctx.open(sys.argv[1]) as engine:
        context = await engine.session("work", max_tokens=10_000_000)
        print("ready", flush=True)
        for line in sys.stdin:
            took = []
            for number in range(int(line)):
                begun = time.perf_counter()
                await context.add_message({"role": "user", "content": f"{number} xxxxxxxxxx"})
                took.append(time.perf_counter() - begun)
            head = (await engine.store.head("work")).head
            print(json.dumps([time.time(), head, took]), flush=True)

asyncio.run(main())
"""


Append = Callable[[int], tuple[float, int, list[float]]]


@pytest.fixture
def append(store: Path) -> Iterator[Append]:
    """A process that appends so many messages to ``work``.

    It tells the time of day when the last append was durable, the head, and each one's seconds.
    """
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started([sys.executable, "-c", WRITER, store], **pipes) as process:
        assert process.stdin is not None and process.stdout is not None

        def appended(count: int) -> tuple[float, int, list[float]]:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            at, head, took = json.loads(process.stdout.readline())
            return at, head, took

        assert process.stdout.readline() == "ready\n"
        yield appended


def test_a_stream_begins_with_what_the_page_lacks(served) -> None:
    whole = served.get("/api/s/work/timeline").document
    stream = served.open_stream("/api/s/work/follow?after=-1")
    kinds = [stream.headers[name] for name in ("content-type", "cache-control")]
    assert (stream.status, kinds) == (200, ["text/event-stream", "no-store"])
    event = stream.event()
    assert (event.name, event.id, event.data) == ("timeline", str(whole["head"]), whole)
    stream.close()
    late = served.open_stream("/api/s/work/follow?after=40")
    assert late.event().data == served.get("/api/s/work/timeline?after=40").document
    late.close()


def test_a_connection_that_was_lost_goes_on_without_a_gap(serving, store, append) -> None:
    served = serving(store)
    whole = served.get("/api/s/work/timeline").document
    seen = list(whole["messages"]["position"])
    stream = served.open_stream(f"/api/s/work/follow?after={whole['head']}")
    append(3)
    event = stream.event()
    seen += event.data["messages"]["position"]
    stream.close()
    append(5)
    target = f"/api/s/work/follow?after={whole['head']}"
    again = served.open_stream(target, f"Last-Event-ID: {event.id}")
    _, head, _ = append(2)
    while event.data["head"] < head:
        event = again.event()
        seen += event.data["messages"]["position"]
    again.close()
    assert seen == served.get("/api/s/work/timeline").document["messages"]["position"]


def test_a_burst_is_few_events(serving, store, append) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    _, last, took = append(300)
    events = []
    while not events or events[-1].data["head"] < last:
        events.append(stream.event())
    _, last, _ = append(1)
    events.append(stream.event())
    assert events[-1].data["head"] == last
    stream.close()
    assert len(events) < 30 + sum(took) / 0.04
    assert all(event.data["messages"]["position"] for event in events)


def test_a_reader_that_does_not_read_keeps_nobody_waiting(serving, store, append) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    quiet = sorted(append(200)[2])[100]
    # None of these reads one byte: each holds one event in its socket, and has no queue.
    slow = [served.open_stream("/api/s/work/follow?after=-1") for _ in range(20)]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    busy = sorted(append(200)[2])[100]
    at, last, _ = append(1)
    event = stream.event()
    while event.data["head"] < last:
        event = stream.event()
    assert time.time() - at < 5
    assert busy < max(10 * quiet, 0.05), (quiet, busy)
    for one in (*slow, stream):
        one.close()


def test_there_are_so_many_streams_and_no_more_and_a_closed_one_makes_room(served) -> None:
    head = served.get("/api/s/work/timeline").document["head"]
    target = f"/api/s/work/follow?after={head}"
    streams = [served.open_stream(target) for _ in range(200)]
    statuses = [one.status for one in streams]
    assert statuses == [200] * MOST_STREAMS + [503] * (200 - MOST_STREAMS)
    assert served.get("/api/about").status == 200
    for one in streams:
        one.close()
    deadline = time.monotonic() + 60
    while (again := served.open_stream(target)).status != 200:
        again.close()
        assert time.monotonic() < deadline
    again.close()


def test_a_session_that_was_deleted_is_told(serving, run, store) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    run("delete", "work", "--yes").ok()
    event = stream.event()
    assert (event.name, "work" in event.data["error"]) == ("trouble", True)
    assert stream.event() is None
    stream.close()
    assert served.get("/api/s/work/timeline").status == 404
