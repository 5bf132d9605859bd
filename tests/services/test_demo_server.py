"""The demo on servers of its own: the same records and screens as on a file, and nothing left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventctx
from tests.services.nats_server import Cluster

# They start programs, and servers.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("postgres", "nats_binary")]

_PROGRAM = (sys.executable, "-m", "eventctx.cli", "demo")
_SERVERS = (sys.executable, "-m", "tests.services.demo_server")
_OWN = {"digest", "duration"}
"""What differs from one run to the next: digests of salted bodies, and times."""


def shown(url: str, environment: dict[str, str]) -> str:
    """What the demo prints on a new store, without digests, and up to the commands to try."""
    said = subprocess.check_output([*_PROGRAM, "--store", url], text=True, env=environment)
    return re.sub(r"\b[0-9a-f]{12,}\b", "…", said.partition("Try next")[0])


async def recorded(url: str) -> Sequence[tuple[Any, ...]]:
    """The demo's records, without what differs from one run to the next."""
    async with eventctx.open(url, create=False, read_only=True) as engine:
        records = [record async for record in engine.store.read("demo")]
    found = []
    for record in records:
        payload = msgspec.json.decode(record.payload)
        kept = {key: value for key, value in payload.items() if key not in _OWN}
        bodies = [(body.data, body.facts) for body in record.bodies]
        found.append((record.type, record.version, record.iteration, kept, bodies))
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With a cache of its own, as the stores of servers keep theirs in the user's."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "100"}


async def test_the_demo_on_servers_is_that_on_a_file(
    postgres_url: str, jetstream: Cluster, tmp_path: Path, environment: dict[str, str]
) -> None:
    file, *others = str(tmp_path / "demo.db"), postgres_url, jetstream.url("DEMO")
    screen, records = shown(file, environment), await recorded(file)
    for url in others:
        assert (shown(url, environment), await recorded(url)) == (screen, records)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files that the user whom PostgreSQL runs as gets through to."""
    with tempfile.TemporaryDirectory(prefix="eventctx-demos-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


@pytest.mark.parametrize(
    ("kind", "number"), [("nats", signal.SIGINT), ("postgres", signal.SIGTERM)]
)
def test_servers_that_were_kept_end_with_a_demo_that_is_interrupted(
    kind: str, number: signal.Signals, temporary: Path, environment: dict[str, str]
) -> None:
    session = temporary / "short.jsonl"
    session.write_text('{"role": "user", "content": "Hello."}\n')
    process = subprocess.Popen(
        [*_SERVERS, "--keep", kind, "--", session],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "TMPDIR": str(temporary)},
    )
    with process.stdout as lines:
        told = ""
        while "until Ctrl-C" not in told:
            line = lines.readline()
            assert line, "the demo ended before it said that its servers stay"
            told += line
        assert "An acknowledged append survives: " in told
        assert "127.0.0.1" in told  # where its store was
        assert servers_in(temporary)
        process.send_signal(number)
        lines.read()
    assert process.wait(60) == 130
    assert servers_in(temporary) == []


def servers_in(folder: Path) -> list[str]:
    """Command lines of processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = entry.read_bytes().replace(b"\0", b" ").decode()
            if str(folder) in line and int(entry.parent.name) != os.getpid():
                found.append(line)
    return found
