"""``backup``, ``restore-backup`` and ``copy``, and the commands on stores on servers."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from eventctx.cli.output.program import DAMAGE, STORE, USAGE
from eventctx.stores.location import default_book
from eventctx.stores.receipt_book import ReceiptBook
from tests.children import started
from tests.cli.conftest import imported, say
from tests.how_much import some
from tests.stores.many_sessions import make, run_measured

PROGRAMS = Path(__file__).parents[1] / "stores" / "programs.py"
ROOT = Path(__file__).parents[2]


def records(run, store: Path) -> int:
    return sum(row["records"] for row in run("verify", "--json", "--store", store).document)


def kept(store: Path) -> list[Path]:
    return sorted(store.parent.glob(f"{store.name}.before-restore-*"))


@pytest.fixture
def backup(run, store: Path, tmp_path: Path) -> Path:
    """A backup of the store, to which a turn is added then."""
    made = tmp_path / "backups" / "copy.db"
    made.parent.mkdir()
    run("backup", made).ok()
    say(store, "work", "after the backup")
    return made


def damage(path: Path) -> None:
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE records SET data = zeroblob(9) WHERE data IS NOT NULL")


def test_a_backup_says_what_it_holds(run, store, tmp_path):
    target = tmp_path / "copy.db"
    first, second = run("backup", target).ok().splitlines()
    assert first.startswith("backed up 1 session, ") and first.endswith(" KB, verified:")
    assert second == str(target)
    assert records(run, target) == records(run, store)


@pytest.mark.parametrize("what", ["a file", "a folder"])
def test_a_backup_replaces_nothing(run, store, tmp_path, what):
    target = tmp_path / "there"
    target.mkdir() if what == "a folder" else target.write_text("mine")
    run("backup", target).fails(str(target))
    assert target.is_dir() or target.read_text() == "mine"


def test_a_backup_of_nothing_makes_nothing(run, tmp_path):
    target = tmp_path / "copy.db"
    run("backup", target, "--store", tmp_path / "none.db").fails(code=STORE)
    assert not target.exists()
    run("backup", target, "--store", "memory://").fails()


def test_a_backup_becomes_a_store_where_there_is_none(run, store, backup, tmp_path):
    place = tmp_path / "new.db"
    assert run("restore-backup", backup, "--store", place).ok().splitlines()[-1] == str(place)
    assert records(run, place) == records(run, backup)
    run("restore-backup", backup, "--store", place).fails("--replace")


def test_the_old_store_is_kept_not_searched_and_nobody_warned_later(run, store, backup, caplog):
    before = records(run, store)
    run("search", '"after the backup"').ok("after the backup")
    lines = run("restore-backup", backup, "--replace", "--yes").ok().splitlines()
    (aside,) = kept(store)
    assert lines[-2:] == ["The store that was there is kept as:", str(aside)]
    assert (records(run, store), records(run, aside)) == (records(run, backup), before)
    assert run("search", '"after the backup"', "--json").document == []
    assert run("search", "Task", "--json").document
    caplog.set_level(logging.WARNING)
    say(store, "work", "after the backup")
    assert "is not what it was" not in caplog.text
    run("verify").ok()


def test_a_damaged_backup_changes_nothing(run, store, backup):
    before = records(run, store)
    damage(backup)
    done = run("restore-backup", backup, "--replace", "--yes")
    assert done.code == DAMAGE
    assert "The backup is damaged; nothing was changed." in done.out
    assert (records(run, store), kept(store)) == (before, [])
    entries = ReceiptBook(default_book(store)).entries()
    assert "restored" not in [entry.what for entry in entries]


def test_what_is_no_backup_is_refused(run, store, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("hello" * 200)
    run("restore-backup", notes, "--store", tmp_path / "new.db").fails(code=STORE)
    run("restore-backup", tmp_path / "none").fails()
    run("restore-backup", store, "--replace", "--yes").fails("the store itself")
    assert not (tmp_path / "new.db").exists()


def test_a_store_that_is_in_use_or_whose_owner_was_not_asked_is_not_replaced(run, store, backup):
    run("restore-backup", backup, "--replace").fails("--yes")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, PROGRAMS, "open_and_append", store]
    with started(command, env={"PYTHONPATH": str(ROOT)}, **pipes) as other:
        assert [other.stdout.readline() for _ in range(2)] == ["opening\n", "opened\n"]
        run("restore-backup", backup, "--replace", "--yes").fails("has it open", code=STORE)
    assert kept(store) == []


def test_an_import_notes_how_its_sessions_end(run, tmp_path: Path) -> None:
    store = imported(run, tmp_path, b'{"role": "user", "content": "Mend it."}\n')
    assert [*ReceiptBook(default_book(store)).last()] == ["talk"]
    export, other = tmp_path / "talk.export.jsonl", tmp_path / "other.db"
    assert run("export", "talk", "--output", export).code == 0
    run("import", export, "--store", other).ok()
    assert [*ReceiptBook(default_book(other)).last()] == ["talk"]


def test_damage_is_shown_with_a_code_of_its_own_and_the_copy_stays(run, store, tmp_path):
    damage(store)
    done = run("backup", tmp_path / "copy.db")
    assert done.code == DAMAGE and "DAMAGED work" in done.out
    assert "The copy has the damage above; keep older backups." in done.out
    assert (tmp_path / "copy.db").exists()
    done = run("copy", store, tmp_path / "other.db")
    assert (done.code, "DAMAGED work @" in done.out) == (DAMAGE, True)
    found = run("copy", store, tmp_path / "other.db", "--json")
    assert (found.code, found.document["ok"]) == (DAMAGE, False)
    (problem,) = found.document["problems"]
    assert problem["session"] == "work" and problem["damage"]


def test_a_copy_says_what_it_did(run, store, tmp_path):
    target = tmp_path / "copy.db"
    copied, checked, place = run("copy", store, target).ok().splitlines()
    assert copied.startswith("copied 1 session: ") and copied.endswith(" KB")
    assert (checked, place) == ("checked 1 session, read back and equal, in:", str(target))
    for command in (("audit", "work"), ("log", "work", "--bodies"), ("verify",)):
        here = run(*command, "--json").out
        there = run(*command, "--json", "--store", target).out
        assert here.replace("global_position", "") == there.replace("global_position", "")
    again = run("copy", store, target)
    assert again.out.startswith("copied 0 sessions (1 there already): 0 records")


@pytest.mark.parametrize(
    ("source", "target", "code", "words"),
    [
        ("nothing.db", "to.db", STORE, "there is no store at"),
        ("s.db", "s.db", USAGE, "found one that was named twice"),
        ("s.db", "memory://", USAGE, "expected one that outlives the command"),
        ("s.db", "mysql://me:hunter2@h/db", USAGE, "postgresql://"),
    ],
)
def test_stores_that_cannot_be_copied(run, store, source, target, code, words):
    done = run("copy", *[one if "://" in one else store.parent / one for one in (source, target)])
    done.fails(words, code=code)
    assert "hunter2" not in done.err


@pytest.mark.slow
def test_a_copy_of_many_sessions_takes_no_more_memory(tmp_path):
    peaks = []
    for count in (some(500, 1_000), some(3_000, 6_000)):
        source = make(tmp_path / f"{count}.db", count)
        found, peak = run_measured("copy", source, tmp_path / f"copy-{count}.db", "--json")
        assert (found["ok"], found["copied"], found["checked"]) == (True, count, count)
        peaks.append(peak)
    # What is under way is bounded, and more of it is where another program has the processor. The
    # records of a session take a kilobyte at the least.
    assert peaks[1] - peaks[0] < 4 * 1024, peaks


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


@pytest.mark.slow
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
