"""The commands on stores on servers: real ones, whose passwords nobody is shown."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventctx.cli.output.program import STORE, USAGE

pytestmark = pytest.mark.slow

_numbers = itertools.count()
SECRET = "hunter2"  # noqa: S105 - nobody asks for it


@pytest.fixture(params=["postgresql", "jetstream"])
def server(request: pytest.FixtureRequest, tmp_path, monkeypatch) -> Iterator[str]:
    """The URL of an empty store; that of PostgreSQL has a password, for which nobody asks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "postgresql":
        postgres = request.getfixturevalue("postgres")
        schema = f"cli_{os.getpid()}_{next(_numbers)}"
        yield str(postgres.url(schema=schema, password=SECRET))
        postgres.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        return
    yield str(request.getfixturevalue("jetstream").url(f"L{os.getpid()}_{next(_numbers)}"))


READING = """
sessions; stats; verify; log work; audit work; transcript wo; view work --turn 2; why work 2;
lost work; trace work
"""


def test_commands_say_the_same_of_a_server_as_of_a_file(run, store, server, tmp_path) -> None:
    copied = run("copy", store, server)
    assert copied.code == 0, copied.err
    assert SECRET not in copied.out + copied.err
    for command in map(str.split, READING.split(";")):
        here = run(*command, "--json", "--store", store)
        there = run(*command, "--json", "--store", server)
        assert there.code == 0, there.err
        assert SECRET not in there.out + there.err
        if command[0] not in ("stats", "log"):
            assert there.out == here.out, command
        text = run(*command, "--store", server).out
        assert text and SECRET not in text
    # It has no file to back up, and the command says what to do.
    backup = tmp_path / "backup.db"
    run("backup", backup, "--store", server).fails("with the server's own tools")
    assert not backup.exists()
    run("backup", backup, "--store", store).ok()
    done = run("restore-backup", backup, "--store", server)
    done.fails(f"eventctx copy {backup} URL")
    assert SECRET not in done.err


def test_there_is_no_server_store_where_none_was_made(run, server) -> None:
    done = run("sessions", "--store", server)
    done.fails(code=STORE)
    assert SECRET not in done.err


_WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None  # as where the extra is not installed
from eventctx.cli.main import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("driver", "url", "extra"),
    [
        ("psycopg", f"postgresql://me:{SECRET}@localhost/db", "postgres"),
        ("nats", f"nats://me:{SECRET}@localhost", "nats"),
    ],
)
def test_a_missing_driver_is_said_with_the_extra_to_install(driver, url, extra) -> None:
    command = [sys.executable, "-c", _WITHOUT, driver, "sessions", "--store", url]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == USAGE, done.stderr
    assert f"pip install 'eventctx[{extra}]'" in done.stderr
    assert SECRET not in done.stderr and "Traceback" not in done.stderr
