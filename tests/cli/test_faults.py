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
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
PROGRAM = [sys.executable, "-m", "eventctx.cli"]


@pytest.mark.parametrize(
    "command",
    [
        *(("log",), ("transcript",), ("audit",), ("replay",), ("verify",), ("export",)),
        *(("view", "--turn", 1), ("fork", "x", "--at", 1)),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_session_is_named_with_those_that_there_are(run, store, command):
    name, *rest = command
    run(name, "wrok", *rest).fails("'wrok'", "'work'")


ZEROS = "0" * 64


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("log", "work", "--type", "context:message_aded"), "mean 'context:message_added'"),
        (("verify", "--receipt", "nonsense"), "SESSION@POSITION"),
        (("verify", "work", "--receipt", f"other@3:{ZEROS}"), "'other'"),
        (("view", "work", "--turn", 9), "has turns 1 to 3, found 9"),
        (("view", "work", "--turn", 1, "--iteration", 9), "iterations 1 to 4"),
        (("view", "work", "--position", 3), "request_prepared"),
        (("view", "work", "--iteration", 1), ""),
        (("transcript", "work", "--turn", 9), "turns 1 to 3"),
        (("transcript", "work", "--at", 9999), "positions @0 to"),
        (("transcript", "work", "--at", -1), "@48 or 48, found '-1'"),
        (("transcript", "work", "--at", 1, "--turn", 1), ""),
        (("replay", "work", "--to", 9999), "positions @0 to"),
        (("log", "work", "--from", 9999), "positions @0 to"),
        (("audit", "work", "--turn", 9), ""),
    ],
)
def test_what_is_not_in_a_session_is_named_with_what_there_is(run, store, command, words):
    run(*command).fails(words)


@pytest.mark.parametrize("command", ["sessions", "stats", "verify"])
def test_reading_makes_no_store(run, tmp_path, command):
    missing = tmp_path / "none.db"
    words = (str(missing), "eventctx import", "eventctx demo")
    run(command, "--store", missing).fails(*words, code=program.STORE)
    assert not missing.exists()


def test_a_folder_another_file_and_memory_are_no_store(run, tmp_path):
    run("sessions", "--store", tmp_path).fails("folder", code=program.STORE)
    other = tmp_path / "notes.txt"
    other.write_text("hello" * 100)
    run("sessions", "--store", other).fails("another format", code=program.STORE)
    assert other.read_text() == "hello" * 100
    run("sessions", "--store", "memory://").fails("outlives")


def _edit(store: Path, old: bytes, new: bytes) -> None:
    with apsw.Connection(str(store)) as database:
        found = database.execute("SELECT pos, data FROM records WHERE data NOT NULL").fetchall()
        edited = [(data.replace(old, new), place) for place, data in found if old in data]
        database.executemany("UPDATE records SET data = ? WHERE pos = ?", edited)


def test_an_edited_message_is_found_by_verify_and_by_view(run, store):
    _edit(store, b"Task 0", b"Task 7")
    done = run("verify")
    assert done.code == 5
    assert "DAMAGED work" in done.out and "was edited" in done.out
    found = run("verify", "--json")
    [checked] = found.document
    assert (found.code, checked["ok"], checked["receipt"]) == (5, False, None)
    assert [problem["kind"] for problem in checked["problems"]] == ["body"]
    view = run("view", "work", "--turn", 1)
    assert (view.code, "DOES NOT VERIFY" in view.out) == (1, True)
    assert run("view", "work", "--turn", 1, "--json").code == 1


def test_contents_that_are_no_json_any_more_are_damage_and_no_traceback(run, store):
    _edit(store, b'{"role":"user","content":"Task 0', b'{"role":"user","content:"Task 0')
    for command in (("transcript", "work"), ("view", "work", "--turn", 1)):
        run(*command).fails("edited or damaged", "eventctx verify work", code=1)
    for command in (("log", "work"), ("replay", "work")):
        done = run(*command)
        assert done.code in (0, 1) and "Traceback" not in done.err
    assert run("verify").code == 5


def test_a_missing_record_and_a_receipt_for_another_history_are_damage(run, store):
    done = run("verify", "--receipt", f"work@3:{ZEROS}")
    assert done.code == 5
    assert "DAMAGED work" in done.out and "rewritten" in done.out
    beyond = run("verify", "--receipt", f"work@9999:{ZEROS}")
    assert (beyond.code, "cut" in beyond.out) == (5, True)
    with apsw.Connection(str(store)) as database:
        database.execute("DELETE FROM records WHERE position = 7")
    done = run("verify")
    assert (done.code, "DAMAGED" in done.out) == (5, True)


# -- in a process of its own ---------------------------------------------------------------------


def _process(*arguments: object, code: str = "", **options):
    program_text = code or "from eventctx.cli.main import main; main()"
    return started(
        [sys.executable, "-c", program_text, *arguments],
        stderr=subprocess.PIPE,
        env=HERE,
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
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, env=HERE)
    assert (done.returncode, b"No space left" in done.stderr) == (program.STORE, True)


def test_python_runs_the_package_as_the_program() -> None:
    command = [sys.executable, "-m", "eventctx", "--version"]
    done = subprocess.run(command, capture_output=True, env=HERE, check=True)
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
    closed = ["sh", "-c", '"$@" >&-', "sh", *PROGRAM, "sessions", "--store", str(store)]
    done = subprocess.run(closed, capture_output=True, cwd=ROOT, check=False)
    assert b"bug" not in done.stderr
