"""``eventctx inspect`` as a program: what it prints, what it needs, and how it ends."""

from __future__ import annotations

import hashlib
import http.client
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

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
