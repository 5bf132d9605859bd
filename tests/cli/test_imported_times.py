"""Screens show the times of an imported file, and say nothing where it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.importers.given import SESSION, ClaudeCode, call, jsonl, text


def imported(run: Any, folder: Path, data: bytes) -> Path:
    store, path = folder / "s.db", folder / "talk.jsonl"
    path.write_bytes(data)
    assert run("import", path, "--store", store).code == 0
    return store


def test_a_session_without_times_has_no_first_and_no_last(run: Any, tmp_path: Path) -> None:
    rows = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    store = imported(run, tmp_path, jsonl([*rows, *rows]))
    (row,) = run("sessions", "--json", "--store", store).document
    assert (row["started"], row["last"]) == (None, None)
    assert "–" in run("sessions", "--store", store).out
    tree = run("trace", "talk", "--store", store).out
    assert "invoke_agent  duration not recorded" in tree
    assert "turn 1 · not dated · trace" in tree


def test_first_and_last_are_the_files_whatever_was_written_later(run: Any, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x")).user("Thanks.").user("Bye.")
    store = imported(run, tmp_path, log.data())
    run("erase", SESSION, 0, "--yes", "--store", store)
    (row,) = run("sessions", "--json", "--store", store).document
    assert row["started"] == "2026-01-01T10:00:01.500000000Z"
    assert row["last"] == "2026-01-01T10:00:04.500000000Z"


def test_a_tree_shows_what_a_turns_program_measured(run: Any, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x"), call("t1")).result("t1")
    log.answer("m2", text("y")).system("turn_duration", durationMs=3_500)
    log.user("Wait for me.").answer("m3", text("x"), call("t2")).result("t2")
    log.answer("m4", text("y")).system("turn_duration", durationMs=1_200)
    # The last turn stays open, as the file may go on, and was measured all the same.
    log.user("Bye.").answer("m5", text("z")).system("turn_duration", durationMs=2_250)
    store = imported(run, tmp_path, log.data())
    turns = [
        line
        for line in run("trace", SESSION, "--store", store).out.splitlines()
        if line.startswith("invoke_agent")
    ]
    assert turns[0].startswith("invoke_agent  3.5 s  ")
    assert turns[1].startswith("invoke_agent  3.0 s (1.2 s by its program's measure)")
    assert turns[2].startswith("invoke_agent  2.2 s  ")
    assert turns[2].endswith("unfinished")


def test_stats_count_requests_by_how_they_are_known(run: Any, tmp_path: Path) -> None:
    file, store = tmp_path / "session.jsonl", tmp_path / "known.db"
    file.write_bytes(ClaudeCode().user("go").answer("m1", text("done")).data())
    assert run("import", file, "--complete", "--store", store).code == 0
    assert "requests     1 (1 reconstructed)\n" in run("stats", "--store", store).out
