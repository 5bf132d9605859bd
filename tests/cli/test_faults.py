"""Bad input and broken stores: one clear line on stderr, and the right exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest

from eventctx.cli.commands.sessions import sessions_command
from eventctx.cli.output import program
from tests.children import started

ROOT = Path(__file__).resolve().parents[2]


def _fails(done, code: int, *words: str) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    assert done.err.startswith(("eventctx: ", "Usage: "))
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    "command",
    [
        ("log",),
        ("transcript",),
        ("audit",),
        ("replay",),
        ("verify",),
        ("export",),
        ("view", "--turn", 1),
        ("fork", "x", "--at", 1),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_session_is_named_with_those_that_there_are(run, store, command):
    name, *rest = command
    _fails(run(name, "wrok", *rest, "--store", store), 2, "'wrok'", "'work'")


@pytest.mark.parametrize("command", ["sessions", "stats", "verify"])
def test_reading_makes_no_store(run, tmp_path, command):
    missing = tmp_path / "none.db"
    _fails(run(command, "--store", missing), 3, str(missing), "eventctx import", "eventctx demo")
    assert not missing.exists()


def test_a_folder_is_no_store(run, tmp_path):
    _fails(run("sessions", "--store", tmp_path), 3, "folder")


def test_another_file_is_no_store(run, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("hello" * 100)
    _fails(run("sessions", "--store", other), 3, "another format")
    assert other.read_text() == "hello" * 100


def test_a_store_in_memory_is_of_no_use_here(run):
    _fails(run("sessions", "--store", "memory://"), 2, "outlives")


def test_a_misspelt_type_is_corrected(run, store):
    done = run("log", "work", "--type", "context:message_aded", "--store", store)
    _fails(done, 2, "did you mean 'context:message_added'")


def test_a_receipt_must_be_one(run, store):
    _fails(run("verify", "--receipt", "nonsense", "--store", store), 2, "SESSION@POSITION")
    zero = "other@3:" + "0" * 64
    _fails(run("verify", "work", "--receipt", zero, "--store", store), 2, "'other'")


def _edit(store: Path, old: bytes, new: bytes) -> None:
    database = apsw.Connection(str(store))
    found = database.execute("SELECT pos, data FROM records WHERE data NOT NULL").fetchall()
    for place, data in found:
        if old in data:
            database.execute(
                "UPDATE records SET data = ? WHERE pos = ?", (data.replace(old, new), place)
            )
    database.close()


def test_an_edited_message_is_found_by_verify_and_by_view(run, store):
    _edit(store, b"Task 0", b"Task 7")
    done = run("verify", "--store", store)
    assert done.code == 5
    assert "DAMAGED work" in done.out and "was edited" in done.out
    found = run("verify", "--json", "--store", store)
    assert found.code == 5
    [checked] = found.document
    assert checked["ok"] is False
    assert checked["receipt"] is None
    assert [problem["kind"] for problem in checked["problems"]] == ["body"]
    view = run("view", "work", "--turn", 1, "--store", store)
    assert view.code == 1
    assert "DOES NOT VERIFY" in view.out
    assert run("view", "work", "--turn", 1, "--json", "--store", store).code == 1


def test_contents_that_are_no_json_any_more_are_damage_and_no_traceback(run, store):
    _edit(store, b'{"role":"user","content":"Task 0', b'{"role":"user","content:"Task 0')
    for command in (("transcript", "work"), ("view", "work", "--turn", 1)):
        _fails(run(*command, "--store", store), 1, "edited or damaged", "eventctx verify work")
    for command in (("log", "work"), ("replay", "work")):
        done = run(*command, "--store", store)
        assert done.code in (0, 1)
        assert "Traceback" not in done.err
    assert run("verify", "--store", store).code == 5


# -- in a process of its own ---------------------------------------------------------------------


def _process(*arguments: object, code: str = "", **options):
    program_text = code or "from eventctx.cli.main import main; main()"
    return started(
        [sys.executable, "-c", program_text, *arguments],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **{"stdout": subprocess.PIPE, **options},
    )


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(store):
    # The reading end is closed before the command starts, so its first write finds nobody there.
    reading, writing = os.pipe()
    os.close(reading)
    with _process("replay", "work", "--json", "--store", store, stdout=writing) as child:
        os.close(writing)
        assert child.stderr.read() == b""
        assert child.wait(60) == program.PIPE_CLOSED


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_the_output_is_told():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "eventctx.cli", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
            check=False,
        )
    assert (done.returncode, b"No space left" in done.stderr) == (program.STORE, True)


def test_python_runs_the_package_as_the_program() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "eventctx", "--version"]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert done.stdout.startswith(b"eventctx, version")


READING_ANOTHERS = """
import importlib, json, os, pkgutil, sys
import eventctx.cli.main, eventctx.stores.sqlite
# What is loaded when it is used lies where the other user may not read.
rooms = "cli log messages policies projections queries session".split()
for name in [*(f"eventctx.{room}" for room in rooms), "rich"]:
    found = importlib.import_module(name)
    for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
        if module.name.split(".")[-1] not in ("__main__", "_win32_console", "_windows_renderer"):
            importlib.import_module(module.name)
import concurrent.futures.thread, encodings.idna, urllib.parse
if os.geteuid() == 0:
    os.setuid(65534)  # for root every file is writable
os.environ["XDG_STATE_HOME"] = "/nowhere"  # the other user's receipts
for command in json.loads(sys.argv[1]):
    if not (child := os.fork()):
        sys.argv[1:] = command
        eventctx.cli.main.main()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(chr(0), code, flush=True)
"""


@pytest.mark.slow
def test_a_read_only_store_can_be_read(store):
    # pytest closes the folder of all its runs to others whenever a run starts: this is another one.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(store, folder))
        copy.chmod(0o444)
        copy.parent.chmod(0o555)
        reading = [["sessions"], ["audit", "work"], ["verify"], ["transcript", "work"]]
        commands = [*reading, ["fork", "work", "new", "--at", "3"]]
        given = [[*command, "--json", "--store", str(copy)] for command in commands]
        with _process(json.dumps(given), code=READING_ANOTHERS) as child:
            out, err = child.communicate(timeout=240)
        assert child.returncode == 0, err
        assert [int(one.split()[0]) for one in out.split(b"\0")[1:]] == [0, 0, 0, 0, 3]
        assert all(one.splitlines()[-1] in (b"]", b"}") for one in out.split(b"\0")[:4])
        assert err.count(b"eventctx: ") == err.count(b"\n") == 1 and b"read-only" in err


def test_an_unknown_exception_keeps_its_traceback(run, store, monkeypatch):
    def broken(**_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(sessions_command, "callback", broken)
    done = run("sessions", "--store", store)
    assert done.code == program.BUG
    assert "Traceback" in done.err and "RuntimeError: a bug" in done.err


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_program_that_is_ended_while_it_writes_leaves_no_half_of_a_file(tmp_path, name):
    program = (
        "import time\nfrom pathlib import Path\n"
        "from eventctx.cli.output.whole_file import whole_file\n"
        f"with whole_file(Path({str(tmp_path / 'out')!r})) as file:\n"
        "    file.write(b'half')\n    print('writing', flush=True)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout.readline() == b"writing\n"
        assert len(list(tmp_path.iterdir())) == 1
        number = getattr(signal, name)
        child.send_signal(number)
        assert child.wait(60) == 128 + number
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_program_whose_output_is_closed_ends_as_always(store):
    command = [sys.executable, "-m", "eventctx.cli", "sessions", "--store", str(store)]
    closed = ["sh", "-c", '"$@" >&-', "sh", *command]
    done = subprocess.run(closed, capture_output=True, cwd=ROOT, check=False)
    assert b"bug" not in done.stderr


def test_turns_and_positions_outside_the_session(run, store):
    _fails(run("view", "work", "--turn", 9, "--store", store), 2, "turns 1 to 3", "9")
    view = run("view", "work", "--turn", 1, "--iteration", 9, "--store", store)
    _fails(view, 2, "iterations 1 to 4")
    _fails(run("transcript", "work", "--turn", 9, "--store", store), 2, "turns 1 to 3")
    _fails(run("transcript", "work", "--at", 9999, "--store", store), 2, "positions @0 to")
    _fails(run("transcript", "work", "--at", -1, "--store", store), 2, "@48 or 48, found '-1'")
    _fails(run("replay", "work", "--to", 9999, "--store", store), 2, "positions @0 to")
    _fails(run("log", "work", "--from", 9999, "--store", store), 2, "positions @0 to")
    _fails(run("view", "work", "--position", 3, "--store", store), 2, "request_prepared")
    assert run("audit", "work", "--turn", 9, "--store", store).code == 2


def test_a_view_needs_to_know_which(run, store):
    assert run("view", "work", "--iteration", 1, "--store", store).code == 2
    assert run("transcript", "work", "--at", 1, "--turn", 1, "--store", store).code == 2


def test_a_receipt_for_another_history_is_damage(run, store):
    done = run("verify", "--receipt", "work@3:" + "0" * 64, "--store", store)
    assert done.code == 5
    assert "DAMAGED work" in done.out
    assert "rewritten" in done.out
    beyond = run("verify", "--receipt", "work@9999:" + "0" * 64, "--store", store)
    assert (beyond.code, "cut" in beyond.out) == (5, True)


def test_a_missing_record_is_damage(run, store):
    database = apsw.Connection(str(store))
    database.execute("DELETE FROM records WHERE position = 7")
    database.close()
    done = run("verify", "--store", store)
    assert done.code == 5
    assert "DAMAGED" in done.out
