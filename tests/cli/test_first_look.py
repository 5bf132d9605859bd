"""``eventctx`` alone, which finds known programs' sessions and reads them, and its ``demo``."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eventctx.cli.demo.run import BUDGET, SAMPLE
from tests.cli.conftest import say
from tests.cli.test_terminal import Terminal
from tests.importers.given import ClaudeCode, text
from tests.sessions import model, user

pytestmark = pytest.mark.slow


ROOF = "aaaaaaaa-2222-3333-4444-555555555555"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    homes = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "CLINE_DATA_DIR")
    for name in (*homes, "EVENTCTX_STORE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def claude(home: Path, words: str = "Mend the roof", session: str = ROOF) -> Path:
    path = home / ".claude" / "projects" / "p" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    log = ClaudeCode(session).user(words).answer("m1", text("x"))
    path.write_bytes(log.user("Thanks.").answer("m2", text("y")).user("Bye.").data())
    return path


def seen(*command: object, answer: str = "") -> tuple[str, str]:
    """What the program asks on a terminal, if it is to be answered, and what it shows then."""
    asked = ""
    with Terminal(*command) as terminal:
        if answer:
            asked = terminal.until("Read the")
            terminal.type(answer)
        return asked, terminal.all()


def test_sessions_are_read_with_consent_and_only_new_files_offered_again(home: Path) -> None:
    claude(home)
    asked, shown = seen(answer="y\r")
    assert "Claude Code" in asked and "1 file, the last written just now" in asked
    assert "Read 1 session in" in shown
    assert "aaaaaaaa" in shown and "Mend the roof" in shown
    assert "audit aaaaaaaa" in shown.replace("\x1b[36m", "")
    _, again = seen()
    assert "Read them?" not in again and "Mend the roof" in again
    claude(home, "Paint the fence", "bbbbbbbb-2222-3333-4444-555555555555")
    (home / ".claude" / "projects" / "broken.jsonl").write_bytes(b"\0\1\2")
    asked, shown = seen(answer="\r")
    assert "Not read yet" in asked and "2 files" in asked
    assert "Paint the fence" in shown and "Mend the roof" in shown
    assert "not read" in shown and "broken.jsonl" in shown


def test_nothing_is_read_without_consent_or_into_a_store_that_was_named(home: Path) -> None:
    path = claude(home)
    path.chmod(0)
    os.utime(path, ns=(1, 1))
    _, shown = seen(answer="n\r")
    assert "demo" in shown and "roof" not in shown
    assert "there is no store at" in seen("lost", "--store", home / "other.db")[1]
    assert path.stat().st_atime_ns == 1
    assert not (home / "data").exists()


def uuid_of(number: int) -> str:
    return f"{number:08x}-2222-3333-4444-555555555555"


def test_beyond_the_newest_files_it_says_how_to_read_the_others(home: Path) -> None:
    for number in range(52):
        path = claude(home, f"Task {number}", uuid_of(number))
        os.utime(path, (1_700_000_000 + number,) * 2)
    asked, shown = seen(answer="\r")
    assert "2 older files" in asked and "Read the newest 50?" in asked
    assert "Read 50 sessions" in shown
    assert "2 older files are not read yet" in shown and "import --all" in shown
    line = [sys.executable, "-m", "eventctx.cli", "import", "--all"]
    imported = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert imported.returncode == 0 and "52 sessions" in imported.stdout
    _, shown = seen()
    assert "not read yet" not in shown and "Read the" not in shown


def test_a_first_reading_that_is_stopped_goes_on_the_next_time(home: Path) -> None:
    for number in range(50):
        claude(home, "Mend the roof. " * 20_000, uuid_of(number))
    with Terminal() as terminal:
        terminal.until("Read them?")
        terminal.type("\r")
        terminal.until("Reading")
        terminal.child.send_signal(signal.SIGINT)
        stopped = terminal.all()
    found = re.search(r"(\d+) of 50 read; run `[^`]*` to go on", stopped)
    assert found is not None, stopped
    asked, _ = seen(answer="n\r")
    assert f"{50 - int(found[1])} files" in asked


def test_without_any_session_it_says_where_it_looked(home: Path) -> None:
    _, shown = seen()
    assert "No sessions yet" in shown and "Codex" in shown and "eventctx" in shown
    assert not (home / "data").exists()


def test_lost_answers_for_the_newest_compacted_session_before_it_reads_on(home: Path) -> None:
    names = [uuid_of(number) for number in range(4)]
    paths = [claude(home, f"Mend roof {name}", name) for name in names]
    log = ClaudeCode(names[2]).user("Never paint it red.").answer("m1", text("x"))
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    log.user("Some roof.", isCompactSummary=True).user("Go on.").answer("m2", text("y"))
    paths[2].write_bytes(log.data())
    for age, path in enumerate(paths):
        os.utime(path, ns=(10**18 - age * 10**9,) * 2)
    asked, shown = seen("lost", answer="y\r")
    assert "Claude Code" in asked
    answer, _, rest = shown.partition("Reading 1 other file")
    assert f"Lost in {names[2]}" in answer and "Never paint it red." in answer
    assert "Read 3 sessions in" in answer and "Read 1 session in" in rest
    _, again = seen("lost")
    assert "Read them?" not in again and "Never paint it red." in again
    assert "Not read yet" not in seen()[1]


def test_in_a_pipe_it_prints_help_and_fails(run) -> None:
    run().fails("Usage: ", "Bring sessions in:")


def test_a_question_without_a_session_is_about_the_last_that_fits(run, tmp_path: Path) -> None:
    for name in ("first", "last"):
        say(tmp_path / "s.db", name, f"Words of {name}")
    done = run("transcript", "--json")
    (message,) = json.loads(done.out)
    assert message["message"]["content"] == "Words of last"
    assert done.err == "session last “Words of last”, the last one used\n"
    run("lost").fails("no session of this store was compacted")
    run("instructions", "--take-back", "0.1").fails()
    for name in ("first", "last"):
        run("delete", name, "--yes").ok()
    run("lost").fails("holds no sessions yet")


def test_lost_without_a_session_is_about_the_last_one_that_was_compacted(run, store) -> None:
    say(store, "newer", "Words")
    done = run("lost")
    assert done.code == 0
    assert done.err.startswith("session work “") and "the last one that was compacted" in done.err
    assert done.out == run("lost", "work").out


def test_the_demo_compacts_verifies_and_what_it_proposes_works(run, tmp_path):
    out = run("demo", "--store", tmp_path / "demo with space.db").ok()
    live, audit = out.split("The audit")
    assert live.count("↓ compaction") >= 3
    assert audit.count("↓ compaction") == live.count("↓ compaction")
    assert "ok demo:" in audit
    at = ("--json", "--store", tmp_path / "demo with space.db")
    requests = run("audit", "demo", *at).document["requests"]
    assert len(requests) > 50
    assert all(row["tokens"] <= row["budget"] == BUDGET for row in requests)
    for turn in (1, 7):
        assert run("view", "demo", "--turn", turn, *at).document["verified"]
    sample = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    assert [row["message"] for row in run("transcript", "demo", *at).document] == sample
    tail = out.split("Try next")[1].split("As a page")[0].splitlines()
    commands = [line for line in tail if line and not line.startswith("#")]
    assert len(commands) >= 6
    names = {"view", "fork", "transcript", "audit", "replay", "verify", "demo"}
    for command in commands:
        words = shlex.split(command)
        start = next(i for i, word in enumerate(words) if word in names)
        if words[start:] == ["demo", "FILE"]:
            continue
        again = run(*words[start:])
        assert again.code == 0, f"{command}\n{again.err}"


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "eventctx" / "demo"


def test_without_a_store_it_leaves_the_last_demo_and_its_page(run, tmp_path, data, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    file = tmp_path / "mine.jsonl"
    file.write_text('{"role": "user", "content": "hello"}\n')
    other = tmp_path / "other.jsonl"
    other.write_bytes(file.read_bytes())
    for one in (other, file, file):
        done = run("demo", one)
        assert done.code == 0
    assert not (tmp_path / "s.db").exists()
    assert list(temporary.iterdir()) == []
    assert {one.name for one in data.iterdir()} == {"demo.db", "demo-mine.html"}
    rows = run("sessions", "--json", "--store", data / "demo.db").document
    assert [row["session"] for row in rows] == ["demo-mine"]
    page = Path(done.out.splitlines()[-1])
    assert page == data / "demo-mine.html"
    assert "<title>demo-mine · eventctx</title>" in page.read_text()


def test_a_session_of_your_own(run, tmp_path):
    file = tmp_path / "mine.jsonl"
    rows = [said(f"{number} words " * 30) for number in range(40) for said in (user, model)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    at = ("--store", tmp_path / "demo.db")
    run("demo", file, *at).ok("↓ compaction")
    [session] = run("sessions", "--json", *at).document
    assert (session["session"], session["messages"], session["turns"]) == ("demo-mine", 80, 40)
    assert run("demo", file, *at).code == 0
    rows = run("sessions", "--json", *at).document
    assert [row["session"] for row in rows] == ["demo-mine-2", "demo-mine"]


def test_a_file_that_is_no_session_and_an_export_are_refused(run, store, tmp_path):
    file, export = tmp_path / "mine.json", tmp_path / "work.jsonl"
    file.write_text('{"theme": "dark"}')
    run("export", "work", "-o", export)
    run("demo", file, "--store", tmp_path / "demo.db").fails("theme")
    run("demo", export, "--store", tmp_path / "demo.db").fails("eventctx import")
    assert not (tmp_path / "demo.db").exists()


def test_on_a_terminal_it_fits(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = run("demo", "--store", tmp_path / "demo.db")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in done.out.splitlines()]
    copied = ("demo@", "eventctx ", "/")
    wide = [line for line in lines if len(line) > 80 and not line.startswith(copied)]
    assert [line for line in wide if "--store" not in line] == []


def test_real_sessions_play(run, tmp_path, recorded_sessions: Path):
    file = next(recorded_sessions.glob("codex/*.jsonl"))
    done = run("demo", file, "--store", tmp_path / "demo.db")
    assert done.code == 0
    assert "↓ compaction" in done.out
