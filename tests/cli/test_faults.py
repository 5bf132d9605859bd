"""Bad input, broken stores, unreadable records: clear lines on stderr, and the right exit code."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import apsw
import pytest

import eventctx
from eventctx.cli.commands.sessions import sessions_command
from eventctx.cli.output import program
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.projections import session_sums
from tests.children import started
from tests.cli.conftest import say

ROOT = Path(__file__).resolve().parents[2]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
PROGRAM = [sys.executable, "-m", "eventctx.cli"]


ZEROS = "0" * 64
REFUSED = f"""
log wrok | 'wrok' | 'work'
transcript wrok | 'wrok' | 'work'
audit wrok | 'wrok' | 'work'
replay wrok | 'wrok' | 'work'
verify wrok | 'wrok' | 'work'
export wrok | 'wrok' | 'work'
view wrok --turn 1 | 'wrok' | 'work'
fork wrok x --at 1 | 'wrok' | 'work'
why wrok 1 | 'wrok' | 'work'
compact nope | no session 'nope'
restore nope 1 | no session 'nope'
log work --type context:message_aded | did you mean 'context:message_added'
log work --from 9999 | positions @0 to
verify --receipt nonsense | SESSION@POSITION
verify work --receipt other@3:{ZEROS} | 'other'
view work --turn 9 | has turns 1 to 3, found 9
view work --turn 1 --iteration 9 | iterations 1 to 4
view work --turn 1 --position 3
view work --position 3 | request_prepared
view work --iteration 1
view work --request 99 | has requests 1 to 12, found 99
transcript work --turn 9 | turns 1 to 3
transcript work --at 9999 | positions @0 to
transcript work --at -1 | @48 or 48, found '-1'
transcript work --at 1 --turn 1
replay work --to 9999 | positions @0 to
audit work --turn 9
fork work work --at 3 | exists already
fork work new --at 10000
fork work a/b --at 3
why work 25 | has messages #0 to #24, found #25 | eventctx transcript work
why work x | expected a message such as #6 or 6, found 'x'
why work -- -1 | expected a message such as #6 or 6, found '-1'
why work | MESSAGE
why work 1 --turn 4 | has turns 1 to 3, found 4
why work 1 --turn 1 --iteration 9 | iterations 1 to 4
why work 1 --iteration 1 | counts within a turn
why work 1 --turn 1 --position 4 | at most one
why work 1 --position 3 | found context:message_added
why work 1 --position -3 | expected a position such as @48 or 48, found '-3'
lost work --turn 1 --compaction 1 | at most one of
lost work --compaction 99 | has compactions 1 to | found 99
lost work --compaction -1 | compaction: expected an int from 0
diff work 1 | Expected two requests
diff work wrok:1.2 | 'wrok' | 'work'
diff work 1 x | expected a turn such as 3 | found 'x'
diff work --position 4 --position 5 | @5 of session
restore work 99 | expected message numbers of the transcript, found [99]
restore work x | expected a message such as #6 or 6, found 'x'
restore work | Expected a message, or --lost
compact work --policy nope | expected one of
compact work --set keep_recent | expected KEY=VALUE, found 'keep_recent'
compact work --set kepe_recent=3 | found ['kepe_recent']
compact work --policy simple --set keep_recent=x | keep_recent: expected an int
compact work --budget 0 | --budget
compact work --set target_usage=2 | target_usage
compare work --policies laddr | expected one of
compare work --policies ladder:no=1 | expected settings among
compare work --policies ladder:target_usgae=0.3 | 'target_usage'
compare work --budgets 5x | expected tokens, such as 50000 or 50k, found '5x'
compare work --price 3/x | expected prices of a million tokens
compare work --summarizer nowhere:f | to be importable
compare wrok | 'work'
compare | SESSION…
compare work --tasks | --tasks
compare --tasks --price 1 | --tasks takes no sessions, prices
compare --tasks --lengths 2k --seeds 1 --budgets 16k | percent of the full length, such as 25
compare work --lengths 8k | --lengths
trace | expected the name of a session, or --all
trace work --all | expected the name of a session, or --all
trace --all --turn 1 | at most one of --turn and --all
trace work --unfinished | --unfinished is for --otlp
trace work --unfinished --jaeger t.json | --unfinished is for --otlp
search
search --since tomorrow | 2026-11-30
erase work 9999 --yes | expected numbers from 0 to
sessions --sort colour
sessions --after work --sort tokens
"""
"""A command a line, with words of what it says."""


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_bad_input_is_one_line_that_says_what_was_expected_and_changes_nothing(run, store, row):
    command, *words = row.split(" | ")
    before = run("log", "work", "--json").out
    run(*command.split()).fails(*words)
    assert run("log", "work", "--json").out == before


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


OF_ANY_TYPE = (
    *("context:messages_set", "context:post_compact", "context:request_prepared"),
    *("prompt:submit", "session:linked", "usage:reported"),
)


def _append(store: Path, kind: str, payload: bytes, version: int) -> None:
    """Write a record into the session ``odd`` as another release, or a broken program, would."""
    time = 1_700_000_000 * 10**9
    draft = Draft(uuid.uuid4().bytes, kind, version, time, payload, turn_id="t-9")

    async def written() -> None:
        async with eventctx.open(store) as engine:
            await engine.store.append("odd", [draft], ANY)

    say(store, "odd", "hello")
    asyncio.run(written())


@pytest.mark.parametrize("kind", OF_ANY_TYPE)
def test_a_record_of_a_later_version_is_passed_over_with_a_word(run, store, kind):
    _append(store, kind, b'{"new":1}', 99)
    listed = run("sessions", "--sort", "made", "--json")
    counted, shown = run("stats", "--json"), run("log", "odd")
    assert [listed.code, counted.code, shown.code] == [0, 0, 0]
    assert [row["session"] for row in listed.document] == ["work", "odd"]
    assert listed.document[1]["messages"] == 1
    assert counted.document["types"][kind] >= 1
    assert f"{kind}  version 99, written by a later release" in shown.out
    said = "".join([done.err for done in (listed, counted, shown)])
    assert "Traceback" not in said
    if kind in ("context:post_compact", "prompt:submit", "usage:reported"):
        assert f"1 record passed over: {kind} of version 99" in said
        assert "update eventctx" in said


@pytest.mark.parametrize("kind", OF_ANY_TYPE)
def test_a_damaged_payload_hides_nothing_else_and_is_told(run, store, kind):
    _append(store, kind, b'{"outcome":7,"number":"x","prompt":null,"order":5}', 1)
    listed, shown = run("sessions", "--sort", "made", "--json"), run("log", "odd")
    assert [row["session"] for row in listed.document] == ["work", "odd"]
    assert f"the payload is no {kind}" in shown.out
    for done in (listed, shown, run("stats", "--json")):
        assert done.code in (0, 1) and done.out and "Traceback" not in done.err
        if done.code:
            assert "position 2" in done.err and "eventctx verify" in done.err


@pytest.mark.parametrize("kind", ["context:message_added", "context:messages_set"])
@pytest.mark.parametrize("version", [1, 99])
def test_a_message_without_its_content_is_no_internal_error(run, store, kind, version):
    payload = b'{"order":[[1,1]]}' if kind.endswith("set") else b"{}"
    _append(store, kind, payload, version)
    for command in (
        *("sessions", "stats", "log odd", "audit odd", "transcript odd", "why odd 0", "lost odd"),
        *("trace odd", "replay odd", "compact odd --dry-run"),
    ):
        done = run(*command.split())
        assert done.code in (0, 1, 2) and "Traceback" not in done.err, (command, done.err)


@pytest.mark.parametrize("command", ["view odd --position 2", "why odd 0 --position 2"])
def test_a_request_of_a_later_version_is_no_internal_error(run, store, command):
    _append(store, "context:request_prepared", b'{"new":1}', 99)
    done = run(*command.split())
    assert done.code in (1, 2) and "Traceback" not in done.err, done.err


def test_a_session_that_breaks_the_listing_does_not_hide_the_others(run, store, monkeypatch):
    run("fork", "work", "other", "--at", 2)
    real = session_sums.count_record

    def broken(state, record):
        if record.stream == "work" and record.position == 7:
            raise IndexError("odd")
        return real(state, record)

    monkeypatch.setattr(session_sums, "count_record", broken)
    done = run("sessions", "--sort", "made", "--json")
    assert [row["session"] for row in done.document] == ["work", "other"]
    assert done.code == 4  # still a bug to report, after the list
    assert "IndexError: odd" in done.err and "while reading session 'work'" in done.err


@pytest.mark.parametrize("edited", [b"[1,2]", b"7", b'"text"', b"null"])
def test_a_message_that_was_edited_into_something_else_is_a_line_of_a_replay(run, tmp_path, edited):
    with apsw.Connection(str(say(tmp_path / "s.db", "odd", "hello"))) as connection:
        connection.execute("UPDATE records SET data = ? WHERE position = 1", (edited,))
        assert connection.changes() == 1
    done = run("replay", "odd")
    assert "Traceback" not in done.err and done.code in (0, 1), done.err
