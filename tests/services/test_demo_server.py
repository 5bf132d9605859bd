"""The demo on servers of its own: the same records and screens as on a file, and nothing left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventctx
from tests.services.nats_server import Cluster

_PROGRAM = (sys.executable, "-m", "eventctx.cli", "demo")
_SERVERS = (sys.executable, "-m", "tests.services.demo_server")
_OWN = {"digest", "duration"}
"""What differs from one run to the next: digests of salted bodies, and times."""


def shown(url: str, environment: dict[str, str]) -> str:
    """What the demo prints on a new store, without digests, and up to the commands to try."""
    ran = subprocess.run(
        [*_PROGRAM, "--store", url], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    screen = ran.stdout.partition("Try next")[0]
    return re.sub(r"\b[0-9a-f]{12,}\b", "…", screen)


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


async def test_the_demo_is_the_same_on_every_store(
    tmp_path: Path, postgres_url: str, jetstream: Cluster, environment: dict[str, str]
) -> None:
    file = str(tmp_path / "demo.db")
    screen, records = shown(file, environment), await recorded(file)
    assert len(records) > 500
    for url in (postgres_url, jetstream.url("DEMO")):
        assert shown(url, environment) == screen
        assert await recorded(url) == records


@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_servers_of_the_demo_say_where_they_were_and_leave_nothing(
    kind: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    folder.chmod(0o711)  # the user that PostgreSQL runs as has to get through
    ran = subprocess.run(
        [*_SERVERS, kind],
        capture_output=True,
        text=True,
        env={**environment, "TMPDIR": str(folder)},
    )
    assert ran.returncode == 0, ran.stderr
    assert "An acknowledged append survives: " in ran.stdout
    assert "127.0.0.1" in ran.stdout
    assert servers_in(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_servers_end_with_a_demo_that_is_interrupted(
    number: signal.Signals, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    process = subprocess.Popen(
        [*_SERVERS, "nats", "--keep"],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    with process.stdout as lines:
        while "until Ctrl-C" not in (line := lines.readline()):
            assert line, "the demo ended before it said that its servers stay"
        assert servers_in(folder)
        process.send_signal(number)
        lines.read()
    assert process.wait(30) == 130
    assert servers_in(folder) == []


def servers_in(folder: Path) -> list[str]:
    """Command lines of processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line and int(entry.name) != os.getpid():
                found.append(line)
    return found
