"""The PostgreSQL of the tests is a real one: it starts, dies, comes back, and has standbys."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.children import started
from tests.services.postgres_server import Server

ROOT = Path(__file__).parents[2]


def test_it_answers_with_its_version(postgres: Server) -> None:
    (row,) = postgres.execute("SHOW server_version")
    assert row[0].split()[0] == postgres.binaries.version


def test_it_keeps_what_a_power_cut_must_not_take(postgres: Server) -> None:
    names = ("fsync", "full_page_writes", "synchronous_commit", "data_checksums")
    assert [postgres.execute(f"SHOW {name}")[0][0] for name in names] == ["on"] * 4


def test_every_test_has_an_empty_database_of_its_own(postgres: Server, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        count = connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        ).fetchone()
    assert count == (0,)


def test_a_killed_server_comes_back_on_its_port_with_what_was_committed() -> None:
    with Server() as server:
        server.execute("CREATE TABLE kept AS SELECT 1 AS one")
        children = server.children()
        server.kill()
        assert children
        with pytest.raises(psycopg.OperationalError):
            server.execute("SELECT 1")
        server.start()
        assert server.execute("SELECT one FROM kept") == [(1,)]


def test_a_paused_server_holds_its_port_and_answers_when_it_goes_on() -> None:
    with Server() as server:
        server.pause()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(server.url(connect_timeout="2"))
        server.resume()
        assert server.execute("SELECT 1") == [(1,)]


def test_a_standby_follows_and_can_take_over() -> None:
    with Server() as primary, primary.standby("second") as standby:
        primary.configure(synchronous_standby_names="ANY 1 (second)", synchronous_commit="on")
        primary.reload()
        primary.execute("CREATE TABLE followed AS SELECT 1 AS one")
        assert standby.execute("SELECT pg_is_in_recovery()") == [(True,)]
        primary.kill()
        standby.promote()
        assert standby.execute("SELECT one FROM followed") == [(1,)]


def test_nothing_is_left_of_it() -> None:
    before = _segments()
    with Server() as server:
        folder, pid = server.folder, server.pid
        server.kill()
        server.start()
        server.kill()
        assert folder.is_dir()
    assert not folder.exists()
    assert not _alive(pid)
    left = _segments() - before  # a process that was killed with its tests may have had this id
    assert not any(str(pid) in one.split() for one in left)


def test_a_server_ends_with_the_tests_that_are_killed() -> None:
    tests = (
        "import sys; from tests.services.postgres_server import Server; server = Server();"
        "server.__enter__(); print(server.pid, server.folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", tests]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        pid, folder = child.stdout.readline().split()
        child.kill()
        until = time.monotonic() + 60
        while _alive(int(pid)) or Path(folder.decode()).exists():
            assert time.monotonic() < until, "the server is still there"
            time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _segments() -> set[str]:
    """The System V segments of this machine, with the processes that made them."""
    told = subprocess.run(["ipcs", "-m", "-p"], capture_output=True, text=True, check=True).stdout
    return set(told.splitlines())
