"""Import, export and fork."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CHAT = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "and now?"},
    {"role": "assistant", "content": "bye"},
]


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT))
    return path


def test_what_was_exported_imports_back_equal(run, store, tmp_path):
    whole = run("export", "work", "--store", store).out
    file = tmp_path / "work.jsonl"
    written = run("export", "work", "-o", file, "--store", store)
    assert (written.code, written.out) == (0, "")
    assert file.read_text() == whole
    other = tmp_path / "other.db"
    [imported] = run("import", file, "--json", "--store", other).lines
    assert (imported["session"], imported["format"], imported["messages"]) == (
        "work",
        "eventctx",
        25,
    )
    assert imported["turns"] == 3
    assert run("export", "work", "--store", other).out == whole
    assert (
        run("verify", "--json", "--store", other).document
        == run("verify", "--json", "--store", store).document
    )
    assert (
        run("audit", "work", "--json", "--store", other).document
        == run("audit", "work", "--json", "--store", store).document
    )


def test_importing_an_export_twice_adds_nothing(run, store, tmp_path):
    file = tmp_path / "work.jsonl"
    run("export", "work", "-o", file, "--store", store)
    [again] = run("import", file, "--json", "--store", store).lines
    assert again["added"] == 0


def test_an_export_can_be_imported_under_another_name(run, store, tmp_path):
    file = tmp_path / "work.jsonl"
    run("export", "work", "-o", file, "--store", store)
    assert run("import", file, "--session", "copy", "--store", store).code == 0
    rows = run("sessions", "--json", "--store", store).document
    assert [row["session"] for row in rows] == ["work", "copy"]


def test_an_export_with_an_edited_line_is_refused(run, store, tmp_path):
    file = tmp_path / "work.jsonl"
    run("export", "work", "-o", file, "--store", store)
    file.write_text(file.read_text().replace("Task 1", "Task 9"))
    done = run("import", file, "--store", tmp_path / "other.db")
    assert done.code == 2
    assert "digest" in done.err


def test_an_export_that_ends_early_is_refused(run, store, tmp_path):
    file = tmp_path / "work.jsonl"
    run("export", "work", "-o", file, "--store", store)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))
    done = run("import", file, "--store", tmp_path / "other.db")
    assert done.code == 2
    assert "ends after" in done.err


def test_a_failed_export_leaves_no_file(run, store, tmp_path):
    assert run("export", "nobody", "-o", tmp_path / "x.jsonl", "--store", store).code == 2
    assert not (tmp_path / "x.jsonl").exists()


def test_a_message_list_is_imported_and_a_second_time_adds_nothing(run, chat, tmp_path):
    first = run("import", chat, "--complete", "--store", tmp_path / "new.db")
    assert first.code == 0
    assert "4 messages, 2 turns" in first.out
    again = run("import", chat, "--complete", "--store", tmp_path / "new.db")
    assert "nothing new" in again.out


def test_a_folder_is_searched_and_what_is_unknown_in_it_passed_over(run, chat, tmp_path):
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    done = run("import", tmp_path, "--store", tmp_path / "new.db")
    assert done.code == 0
    assert "chat" in done.out
    assert "1 file of unknown format passed over" in done.out


def test_a_file_that_cannot_be_read_does_not_stop_the_others(run, chat, tmp_path):
    bad = tmp_path / "bad.bin"
    bad.write_bytes(b"\0\1\2")
    done = run("import", bad, chat, "--store", tmp_path / "new.db")
    assert done.code == 2
    assert "bad.bin" in done.err and "binary" in done.err
    assert "chat" in done.out


def test_the_format_can_be_given(run, tmp_path, chat):
    done = run("import", chat, "--format", "codex", "--store", tmp_path / "new.db")
    assert done.code in (0, 2)
    assert run("import", chat, "--format", "nonsense").code == 2


def test_the_default_store_is_made_on_the_first_import(run, chat, tmp_path, monkeypatch):
    monkeypatch.delenv("EVENTCTX_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run("import", chat).code == 0
    assert len(run("sessions", "--json").document) == 1


def test_a_fork_shares_what_was_before(run, store):
    done = run("fork", "work", "other", "--at", 10, "--json", "--store", store)
    assert done.code == 0
    assert done.document["receipt"].startswith("other@11:")
    mine = run("transcript", "other", "--json", "--store", store).document
    theirs = run("transcript", "work", "--at", 10, "--json", "--store", store).document
    assert mine == theirs
    assert run("verify", "other", "--store", store).code == 0
    assert "fork of work @10" in run("sessions", "--store", store).out


def test_the_audit_of_a_fork_is_its_own(run, store):
    run("fork", "work", "other", "--at", 10, "--store", store)
    assert "No request" in run("audit", "other", "--store", store).out
    assert run("audit", "other", "--json", "--store", store).document["requests"] == []


def test_a_fork_needs_a_free_name_and_a_position_that_exists(run, store):
    taken = run("fork", "work", "work", "--at", 3, "--store", store)
    assert (taken.code, "exists already" in taken.err) == (2, True)
    outside = run("fork", "work", "new", "--at", 10_000, "--store", store)
    assert outside.code == 2
    assert run("fork", "work", "a/b", "--at", 3, "--store", store).code == 2
