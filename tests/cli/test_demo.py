"""``demo``: it compacts, verifies, and what it proposes to try works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from eventctx.cli.demo.run import BUDGET, SAMPLE
from tests.sessions import model, user

# Three of them look at one demo, in one process.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("the demo")]


def test_the_demo_compacts_verifies_and_audits(run, demo, demo_store):
    live, audit = demo.outcome.out.split("The audit")
    assert live.count("↓ compaction") >= 3
    assert audit.count("↓ compaction") == live.count("↓ compaction")
    assert "ok demo:" in audit
    at = ("--json", "--store", demo_store)
    requests = run("audit", "demo", *at).document["requests"]
    assert len(requests) > 50
    assert all(row["tokens"] <= row["budget"] == BUDGET for row in requests)
    for turn in (1, 7):
        assert run("view", "demo", "--turn", turn, *at).document["verified"]
    sample = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    assert [row["message"] for row in run("transcript", "demo", *at).document] == sample


def test_what_it_proposes_to_try_works(run, demo):
    tail = demo.outcome.out.split("Try next")[1].split("As a page")[0].splitlines()
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
    """The user's data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "eventctx" / "demo"


def test_without_a_store_it_leaves_yours_alone_and_nothing_but_the_last_demo_and_its_page(
    run, tmp_path, data, monkeypatch
):
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
