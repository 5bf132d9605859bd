"""``eventctx`` alone: known programs' sessions are found, read with consent, and listed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import eventctx
from tests.cli.test_terminal import Terminal
from tests.importers.given import ClaudeCode, text

pytestmark = pytest.mark.slow


def talk(words: str, session: str) -> bytes:
    log = ClaudeCode(session).user(words).answer("m1", text("x"))
    return log.user("Thanks.").answer("m2", text("y")).user("Bye.").data()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    homes = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "CLINE_DATA_DIR")
    for name in (*homes, "EVENTCTX_STORE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def claude(home: Path, words: str, session: str) -> Path:
    path = home / ".claude" / "projects" / "p" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(talk(words, session))
    return path


def test_sessions_are_read_with_consent_listed_and_not_offered_again(home: Path) -> None:
    claude(home, "Mend the roof", "aaaaaaaa-2222-3333-4444-555555555555")
    with Terminal() as terminal:
        asked = terminal.until("Read them?")
        assert "Claude Code" in asked and "1 file, the last written just now" in asked
        terminal.type("y\r")
        shown = terminal.all()
    assert "Read 1 session in" in shown
    assert "aaaaaaaa" in shown and "Mend the roof" in shown
    assert "audit aaaaaaaa" in shown.replace("\x1b[36m", "")
    with Terminal() as terminal:
        again = terminal.all()
    assert "Read them?" not in again and "Mend the roof" in again


def test_nothing_is_read_or_made_without_consent(home: Path) -> None:
    path = claude(home, "Mend the roof", "aaaaaaaa-2222-3333-4444-555555555555")
    path.chmod(0)
    os.utime(path, ns=(1, 1))
    with Terminal() as terminal:
        terminal.until("Read them?")
        terminal.type("n\r")
        shown = terminal.all()
    assert "demo" in shown and "roof" not in shown
    assert path.stat().st_atime_ns == 1
    assert not (home / "data").exists()


def test_a_file_that_is_new_is_offered_beside_those_that_were_read(home: Path) -> None:
    claude(home, "Mend the roof", "aaaaaaaa-2222-3333-4444-555555555555")
    with Terminal() as terminal:
        terminal.until("Read them?")
        terminal.type("\r")
        terminal.all()
    claude(home, "Paint the fence", "bbbbbbbb-2222-3333-4444-555555555555")
    (home / ".claude" / "projects" / "broken.jsonl").write_bytes(b"\0\1\2")
    with Terminal() as terminal:
        asked = terminal.until("Read them?")
        assert "Not read yet" in asked and "2 files" in asked
        terminal.type("y\r")
        shown = terminal.all()
    assert "Paint the fence" in shown and "Mend the roof" in shown
    assert "not read" in shown and "broken.jsonl" in shown


def uuid_of(number: int) -> str:
    return f"{number:08x}-2222-3333-4444-555555555555"


def dated(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def test_beyond_the_newest_files_it_says_how_to_read_the_others(home: Path) -> None:
    for number in range(52):
        dated(claude(home, f"Task {number}", uuid_of(number)), 1_700_000_000 + number)
    with Terminal() as terminal:
        assert "2 older files" in terminal.until("Read the newest 50?")
        terminal.type("\r")
        shown = terminal.all()
    assert "Read 50 sessions" in shown
    assert "2 older files are not read yet" in shown and "import --all" in shown
    imported = run_program("import", "--all")
    assert imported.returncode == 0 and "52 sessions" in imported.stdout
    with Terminal() as terminal:
        shown = terminal.all()
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
    with Terminal() as terminal:
        asked = terminal.until("Read them?")
        assert f"{50 - int(found[1])} files" in asked
        terminal.type("n\r")
        terminal.all()


def run_program(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "eventctx.cli", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_without_any_session_it_says_where_it_looked(home: Path) -> None:
    with Terminal() as terminal:
        shown = terminal.all()
    assert "No sessions yet" in shown and "Codex" in shown and "eventctx" in shown
    assert not (home / "data").exists()


def test_lost_answers_for_the_newest_compacted_session_and_then_reads_the_others(
    home: Path,
) -> None:
    names = [f"{letter * 8}-2222-3333-4444-555555555555" for letter in "abcd"]
    paths = [claude(home, f"Mend roof {name[0]}", name) for name in names]
    log = ClaudeCode(names[2]).user("Never paint it red.").answer("m1", text("x"))
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    log.user("Some roof.", isCompactSummary=True).user("Go on.").answer("m2", text("y"))
    paths[2].write_bytes(log.data())
    for age, path in enumerate(paths):
        os.utime(path, ns=(10**18 - age * 10**9,) * 2)
    with Terminal("lost") as terminal:
        assert "Claude Code" in terminal.until("Read them?")
        terminal.type("y\r")
        shown = terminal.all()
    answer, _, rest = shown.partition("Reading 1 other file")
    assert f"Lost in {names[2]}" in answer and "Never paint it red." in answer
    assert "Read 3 sessions in" in answer and "Read 1 session in" in rest
    with Terminal("lost") as terminal:
        again = terminal.all()
    assert "Read them?" not in again and "Never paint it red." in again
    with Terminal() as terminal:
        assert "Not read yet" not in terminal.all()


def test_lost_of_a_store_that_somebody_named_reads_nothing(home: Path) -> None:
    claude(home, "Mend the roof", "aaaaaaaa-2222-3333-4444-555555555555")
    with Terminal("lost", "--store", str(home / "other.db")) as terminal:
        assert "there is no store at" in terminal.all()
    assert not (home / "data").exists()


def test_in_a_pipe_it_prints_help_and_fails(run) -> None:
    done = run()
    assert done.code == 2 and done.err.startswith("Usage: ") and "Bring sessions in:" in done.err


def said(store: Path, session: str) -> None:
    async def say() -> None:
        async with eventctx.open(store) as engine:
            context = await engine.session(session)
            await context.add_message({"role": "user", "content": f"Words of {session}"})

    asyncio.run(say())


def test_a_question_without_a_session_is_about_the_last_one_used(run, tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    for name in ("first", "last"):
        said(store, name)
    done = run("transcript", "--json", "--store", store)
    (message,) = json.loads(done.out)
    assert message["message"]["content"] == "Words of last"
    assert done.err == "session last “Words of last”, the last one used\n"


def test_lost_without_a_session_is_about_the_last_one_that_was_compacted(run, store) -> None:
    said(store, "newer")
    done = run("lost", "--store", store)
    assert done.code == 0
    assert done.err.startswith("session work “") and "the last one that was compacted" in done.err
    assert done.out == run("lost", "work", "--store", store).out


def test_without_a_session_that_fits_the_reason_is_told(run, tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def empty() -> None:
        async with eventctx.open(store):
            pass

    asyncio.run(empty())
    assert "holds no sessions yet" in run("lost", "--store", store).err
    said(store, "one")
    none = run("lost", "--store", store)
    assert none.code == 2 and "no session of this store was compacted" in none.err
    assert run("instructions", "--take-back", "0.1", "--store", store).code == 2
