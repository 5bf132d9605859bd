"""``demo``: it compacts, verifies, and what it proposes to try works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from eventctx.cli.demo.run import BUDGET, SAMPLE

# Three of them look at one demo, in one process.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("the demo")]


@pytest.fixture(scope="module")
def sample() -> list[dict[str, object]]:
    return [json.loads(line) for line in SAMPLE.read_text().splitlines()]


def test_the_demo_compacts_verifies_and_audits(run, demo, demo_store):
    live, audit = demo.outcome.out.split("The audit")
    assert live.count("↓ compaction") >= 3
    assert audit.count("↓ compaction") == live.count("↓ compaction")
    assert "ok demo:" in audit
    requests = run("audit", "demo", "--json", "--store", demo_store).document["requests"]
    assert len(requests) > 50
    assert all(row["tokens"] <= row["budget"] == BUDGET for row in requests)
    for turn in (1, 7):
        view = run("view", "demo", "--turn", turn, "--json", "--store", demo_store).document
        assert view["verified"]


def test_the_transcript_equals_the_sample(run, demo_store, sample):
    rows = run("transcript", "demo", "--json", "--store", demo_store).document
    assert [row["message"] for row in rows] == sample


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
    assert not (tmp_path / "default.db").exists()
    assert list(temporary.iterdir()) == []
    assert {one.name for one in data.iterdir()} == {"demo.db", "demo-mine.html"}
    rows = run("sessions", "--json", "--store", data / "demo.db").document
    assert [row["session"] for row in rows] == ["demo-mine"]
    page = Path(done.out.splitlines()[-1])
    assert page == data / "demo-mine.html"
    assert "<title>demo-mine · eventctx</title>" in page.read_text()


def test_a_session_of_your_own(run, tmp_path):
    file = tmp_path / "mine.jsonl"
    rows = []
    for number in range(40):
        rows.append({"role": "user", "content": f"question {number} " * 40})
        rows.append({"role": "assistant", "content": f"answer {number} " * 40})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = tmp_path / "demo.db"
    done = run("demo", file, "--store", store)
    assert (done.code, done.err) == (0, "")
    assert "↓ compaction" in done.out
    [session] = run("sessions", "--json", "--store", store).document
    assert (session["session"], session["messages"], session["turns"]) == ("demo-mine", 80, 40)
    assert run("demo", file, "--store", store).code == 0
    rows = run("sessions", "--json", "--store", store).document
    assert [row["session"] for row in rows] == ["demo-mine-2", "demo-mine"]


def test_a_file_that_is_no_session_is_refused(run, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"theme": "dark"}')
    done = run("demo", file, "--store", tmp_path / "demo.db")
    assert done.code == 2
    assert "theme" in done.err
    assert not (tmp_path / "demo.db").exists()


def test_an_export_is_not_played_but_imported(run, store, tmp_path):
    run("export", "work", "-o", tmp_path / "work.jsonl", "--store", store)
    done = run("demo", tmp_path / "work.jsonl", "--store", tmp_path / "demo.db")
    assert done.code == 2
    assert "eventctx import" in done.err


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
